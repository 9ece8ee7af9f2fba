"""Every malformed input is one clear sentence that names it, with the line where there is one; nothing else changes."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drill.bad_inputs import FILES, LINE, Case, all_cases
from tests.unit.collection_helpers import CORPUS, QRELS, QUERIES, json_lines, normalize, write_zip
from tests.unit.tiny_bench import write_config

from zerodr.artifacts.trec import read_run
from zerodr.config.load import load_bench
from zerodr.errors import ZerodrError
from zerodr.plan import Plan

CASES = all_cases()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_there_are_many():
    assert len(CASES) >= 300
    assert len({(case.kind, case.name) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[f"{case.kind}: {case.name}" for case in CASES])
def test_malformed(case: Case, tmp_path: Path):
    case.write(tmp_path)
    before = files(tmp_path)
    with pytest.raises(ZerodrError) as caught:
        case.read(tmp_path)
    said = str(caught.value)
    assert "\n" not in said and len(said) < 700 and said.count(": ") >= 2, said
    assert case.file in said, said
    assert case.line is None or f":{case.line}" in said, said
    assert {name: text for name, text in files(tmp_path).items() if name in before} == before


# ---- any bytes -----------------------------------------------------------------------------------------------------
ALPHABET = st.sampled_from(list('{}[]":,_idtexqscorpus0123456789 \t\n-') + ["\x00", "é", "\ufeff"])
GARBAGE = st.one_of(st.binary(max_size=80), st.text(ALPHABET, max_size=80).map(str.encode))


def changed(draw: st.DrawFn, content: bytes) -> bytes:
    """The content with a part replaced by anything."""
    start = draw(st.integers(0, len(content)))
    end = draw(st.integers(start, min(len(content), start + 20)))
    return content[:start] + draw(GARBAGE) + content[end:]


@st.composite
def changes(draw: st.DrawFn, *names: str) -> tuple[str, bytes]:
    """A file of the first case of a kind, and its changed content."""
    name = draw(st.sampled_from(names))
    return name, changed(draw, VALID[name])


VALID = {
    "corpus.jsonl": json_lines(CORPUS).encode(),
    "queries.jsonl": json_lines(QUERIES).encode(),
    "qrels/test.tsv": QRELS.encode(),
    "run.trec": LINE.encode() * 2,
    "run.trec.gz": gzip.compress(LINE.encode() * 2),
}


@settings(max_examples=120, deadline=None)
@given(changes("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"))
def test_any_bytes_in_a_collection(change):
    with TemporaryDirectory() as name:
        members = {f"x/{file}": content for file, content in (VALID | dict([change])).items() if "run" not in file}
        write_zip(Path(name, "x.zip"), members)
        with sentence_or_nothing("x"):
            normalize(Path(name, "x.zip"), Path(name, "out"))


@settings(max_examples=120, deadline=None)
@given(changes("run.trec", "run.trec.gz"))
def test_any_bytes_in_a_run(change):
    with TemporaryDirectory() as name:
        path = Path(name, change[0])
        path.write_bytes(change[1])
        with sentence_or_nothing(change[0]):
            read_run(path)


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_any_bytes_in_a_configuration(data):
    with TemporaryDirectory() as name:
        write_config(Path(name))
        file = data.draw(st.sampled_from(FILES))
        path = Path(name, "config", file)
        path.write_bytes(changed(data.draw, path.read_bytes()))
        with sentence_or_nothing(""):
            Plan(load_bench(Path(name)))


@contextmanager
def sentence_or_nothing(where: str) -> Iterator[None]:
    """Any error of the body must be one sentence that names `where`."""
    try:
        yield
    except ZerodrError as error:
        assert "\n" not in str(error) and where in str(error)
