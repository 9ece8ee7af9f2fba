"""Malformed collections, configurations, model folders and run files: what is written, and what an error must name."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.drill.bad_folders import folder_faults
from tests.drill.bad_models import MODELS
from tests.unit.collection_helpers import CORPUS, QRELS, QUERIES, json_lines, normalize, write_zip
from tests.unit.encoder_helpers import import_settings, tiny_bert
from tests.unit.tiny_bench import write_config
from zerodr.artifacts.trec import read_run
from zerodr.config.load import load_bench
from zerodr.encoders.start.importing import copy_model
from zerodr.plan import Plan
from zerodr.retrieval.imported import ImportRunSettings, check_documents, take


class Case(NamedTuple):
    """A malformed input.

    Attributes:
        kind: collection, folder, configuration, model or run.
        name: of the fault.
        file: what the error must name.
        line: of the file, where a line makes sense.
        write: writes the input into a folder.
        read: reads it, and so must fail.
    """

    kind: str
    name: str
    file: str
    line: int | None
    write: Callable[[Path], object]
    read: Callable[[Path], object]


# ---- collections ---------------------------------------------------------------------------------------------------
ROWS = {
    "no JSON": ("{", 2),
    "a list": ("[1]", 2),
    "a number": ("7", 2),
    "null": ("null", 2),
    "half an object": ('{"_id": "x", "text": "t', 2),
    "no id": ('{"text": "t"}', 2),
    "number as id": ('{"_id": 7, "text": "t"}', 2),
    "no text": ('{"_id": "x"}', 2),
    "number as text": ('{"_id": "x", "text": 7}', 2),
    "null as text": ('{"_id": "x", "text": null}', 2),
    "list as text": ('{"_id": "x", "text": ["t"]}', 2),
    "empty id": ('{"_id": "", "text": "t"}', 2),
    "other keys": ('{"id_": "x", "contents": "t"}', 2),
    "a key twice": ('{"_id": "x", "text": "t", "text": ""}', 2),
    "brackets inside each other": ('{"_id": "x", "text": ' + "[" * 100_000 + "}", 2),
    "a number with 5,000 digits": ('{"_id": "x", "text": "t", "more": ' + "9" * 5000 + "}", 2),
    "a lone surrogate in the id": ('{"_id": "a\\ud800", "text": "t"}', 2),
    "a tab in the id": ('{"_id": "a\\tb", "text": "t"}', 2),
    "a next line in the id": ('{"_id": "a\\u0085b", "text": "t"}', 2),
    "an extra comma": ('{"_id": "x", "text": "t",}', 2),
    "two objects": ('{"_id": "x", "text": "t"} {"_id": "y", "text": "t"}', 2),
    "NaN": ("NaN", 2),
}
CORPUS_ROWS = ROWS | {
    "number as title": ('{"_id": "x", "title": 7, "text": "t"}', 2),
    "id twice": ('{"_id": "d1", "title": "", "text": "t"}', 2),
}
QUERY_ROWS = ROWS | {"id twice": ('{"_id": "q1", "text": "t"}', 2)}
JUDGEMENTS = {
    "two cells": ("q1\td1", 2),
    "four cells": ("q1\td1\t1\t1", 2),
    "spaces": ("q1 d1 1", 2),
    "commas": ("q1,d1,1", 2),
    "a word as grade": ("q1\td1\thigh", 2),
    "a fraction as grade": ("q1\td1\t0.5", 2),
    "no grade": ("q1\td1\t", 2),
    "a grade with an underscore": ("q1\td1\t1_0", 2),
    "a grade in Arabic digits": ("q1\td1\t\u0661", 2),
    "a grade that is a time": ("q1\td1\t1700000000", 2),
    "a query with lost zeros": ("1\td1\t1", None),
    "an unknown document": ("q1\tnone\t1", None),
    "an unknown query": ("none\td1\t1", None),
}


def second_line(text: str, line: str) -> str:
    """Put a line after the first one."""
    first, rest = text.split("\n", 1)
    return f"{first}\n{line}\n{rest}"


def collection_cases() -> Iterator[Case]:
    """Archives in BEIR's layout."""
    texts = {"corpus.jsonl": json_lines(CORPUS), "queries.jsonl": json_lines(QUERIES), "qrels/test.tsv": QRELS}
    faults = {"corpus.jsonl": CORPUS_ROWS, "queries.jsonl": QUERY_ROWS, "qrels/test.tsv": JUDGEMENTS}

    def archive(changed: dict[str, str | bytes | None]) -> Callable[[Path], object]:
        members = {f"x/{name}": text for name, text in (texts | changed).items() if text is not None}
        return lambda folder: write_zip(folder / "x.zip", members)

    def read(folder: Path) -> object:
        return normalize(folder / "x.zip", folder / "out")

    for member, lines in faults.items():
        for name, (line, number) in lines.items():
            write = archive({member: second_line(texts[member], line)})
            where = "x.zip" if number else "x"
            yield Case("collection", f"{member}: {name}", where, number, write, read)
        bad = texts[member].encode().replace(b"\n", b"\n\xff\xfe\n", 1)
        yield Case("collection", f"{member}: not in UTF-8", member, 2, archive({member: bad}), read)
    yield Case("collection", "no corpus", "x.zip", None, archive({"corpus.jsonl": None}), read)
    yield Case("collection", "empty corpus", "x", None, archive({"corpus.jsonl": ""}), read)
    yield Case("collection", "no queries", "x", None, archive({"queries.jsonl": None}), read)
    yield Case("collection", "empty judgements", "x", None, archive({"qrels/test.tsv": ""}), read)
    for name, damage in ARCHIVES.items():

        def write(folder: Path, damage: Callable[[Path], object] = damage) -> None:
            archive({})(folder)
            damage(folder / "x.zip")

        yield Case("collection", f"archive: {name}", "x.zip", None, write, read)


def _outside(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../outside.txt", "x")


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[60] ^= 0xFF
    path.write_bytes(bytes(content))


ARCHIVES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "a text": lambda path: path.write_text("not an archive"),
    "cut in half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "a byte changed": _flip,
}


def folder_cases() -> Iterator[Case]:
    """A user's folder, in any form that is read, or nearly so."""

    def files(contents: dict[str, str | bytes]) -> Callable[[Path], object]:
        def write(folder: Path) -> None:
            for name, text in contents.items():
                path = folder / "notes" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text if isinstance(text, bytes) else text.encode())

        return write

    def read(folder: Path) -> object:
        bench = folder / "checkout"
        write_config(bench)
        (bench / "config/config.yaml").write_text(f"{{scale: mini, byo: {folder / 'notes'}}}\n")
        plan = Plan(load_bench(bench))
        return read_folder(folder / "notes", folder / "out", plan)

    for name, contents, file, line in folder_faults():
        yield Case("folder", name, file, line, files(contents), read)


def read_folder(source: Path, target: Path, plan: Plan) -> object:
    """Normalise a user's folder that the plan accepted."""
    from zerodr.collections.user_folders import write_section

    row, files = plan.collection(source.name), plan.bench.folders[source.name].files
    target.mkdir()
    for section, paths in files.items():
        write_section(section, str(source), paths, row, target)
    return target


# ---- configurations ------------------------------------------------------------------------------------------------
FILES = ("config.yaml", "scales.yaml", "protocols.yaml", "collections/tiny.yaml", "methods/dense.yaml")
ANY_FILE: dict[str, tuple[Callable[[str], str | bytes], int | None]] = {
    "no YAML": (lambda text: f"{text}key: [1\n", None),
    "a tab": (lambda text: f"key:\n\t- 1\n{text}", 2),
    "not in UTF-8": (lambda text: text.encode() + b"# \xff\n", None),
    "a list": (lambda text: "- 1\n- 2\n", None),
    "a word": (lambda text: "nothing\n", None),
    "an unknown key": (lambda text: _with(text, {"colour": {"red": 1}}), None),
    "a python object": (lambda text: "key: !!python/object/apply:os.system [ls]\n", 1),
    "a key twice": (lambda text: "a: 1\na: 2\n", 2),
    "a number in base 8": (lambda text: "a: 1\nseed: 0100\n", 2),
    "a number in base 60": (lambda text: "a: 1\nseed: 1:30\n", 2),
    "a fraction in base 60": (lambda text: "a: 1\nseed: 1:30.5\n", 2),
    "a number with an underscore": (lambda text: "a: 1\nseed: 1_000\n", 2),
    "a number in base 2": (lambda text: "a: 1\nseed: 0b11\n", 2),
    "an alias of nothing": (lambda text: "a: *nothing\n", 1),
}
CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "unknown scale": ("config.yaml", {"scale": "huge"}),
    "scale as number": ("config.yaml", {"scale": 1}),
    "seed as word": ("config.yaml", {"seed": "lucky"}),
    "negative seed": ("config.yaml", {"seed": -1}),
    "seed of 30 digits": ("config.yaml", {"seed": 10**30}),
    "resamples without end": ("config.yaml", {"bootstrap_samples": 10**11}),
    "shards of 20 digits": ("config.yaml", {"shard_documents": 10**20}),
    "infinite k1": ("methods/bm25-flat.yaml", {"settings": {"k1": float("inf"), "b": 0.4}}),
    "b of no number": ("methods/bm25-flat.yaml", {"settings": {"k1": 0.9, "b": float("nan")}}),
    "unknown method": ("config.yaml", {"methods": ["bm25"]}),
    "methods as mapping": ("config.yaml", {"methods": {"bm25-flat": 1}}),
    "method twice": ("config.yaml", {"methods": ["bm25-flat", "bm25-flat"]}),
    "unknown collection": ("config.yaml", {"collections": ["toys"]}),
    "unknown source": ("config.yaml", {"source": "toys"}),
    "unknown protocol": ("config.yaml", {"protocol": "fast"}),
    "shards of nothing": ("config.yaml", {"shard_documents": 0}),
    "gpus as word": ("config.yaml", {"gpus": "many"}),
    "offline as word": ("config.yaml", {"offline": "sometimes"}),
    "folder that is none": ("config.yaml", {"byo": "no/such/folder"}),
    "protocol without description": ("protocols.yaml", {"standard": {}}),
    "protocol with tokens as word": ("protocols.yaml", {"standard": {"description": "x", "query_tokens": "all"}}),
    "scale without collections": ("scales.yaml", {"mini": {"description": "x"}}),
    "unknown kind of method": ("methods/dense.yaml", {"kind": "magic"}),
    "no kind": ("methods/dense.yaml", {"kind": None}),
    "no model": ("methods/dense.yaml", {"settings": {}}),
    "model as list": ("methods/dense.yaml", {"settings": {"model": ["a"]}}),
    "unknown index": ("methods/dense.yaml", {"settings": {"model": "a/b", "index": "tree"}}),
    "variant of unknown setting": ("methods/dense.yaml", {"variants": {"x": {"settings": {"speed": 3}}}}),
    "variant as list": ("methods/dense.yaml", {"variants": [1]}),
    "fusion of unknown runs": ("methods/hybrid.yaml", {"settings": {"runs": ["bm25-flat", "sparse"]}}),
    "fusion of one run": ("methods/hybrid.yaml", {"settings": {"runs": ["bm25-flat"]}}),
    "negative k1": ("methods/bm25-flat.yaml", {"settings": {"k1": -1, "b": 0.4}}),
    "b over 1": ("methods/bm25-flat.yaml", {"settings": {"k1": 0.9, "b": 4}}),
    "collections as list": ("collections/tiny.yaml", {"collections": []}),
    "row that is empty": ("collections/tiny.yaml", {"collections": {"toy": {}}}),
    "row with an unknown key": ("collections/tiny.yaml", {"collections": {"toy": {"label": "T", "size": 1}}}),
}


def _with(text: str, changes: dict[str, Any]) -> str:
    import yaml

    return yaml.safe_dump((yaml.safe_load(text) or {}) | changes)


def configuration_cases() -> Iterator[Case]:
    """Files of `config/`."""

    def read(folder: Path) -> object:
        return Plan(load_bench(folder))

    def changed(file: str, change: Callable[[str], str | bytes]) -> Callable[[Path], object]:
        def write(folder: Path) -> None:
            write_config(folder)
            path = folder / "config" / file
            text = change(path.read_text())
            path.write_bytes(text if isinstance(text, bytes) else text.encode())

        return write

    for file in FILES:
        for name, (change, line) in ANY_FILE.items():
            yield Case("configuration", f"{file}: {name}", file, line, changed(file, change), read)
    for name, (file, change_of) in CHANGES.items():
        write = changed(file, lambda text, change_of=change_of: _with(text, change_of))
        yield Case("configuration", f"{file}: {name}", "", None, write, read)


# ---- model folders -------------------------------------------------------------------------------------------------
def model_cases() -> Iterator[Case]:
    """Folders of transformers and sentence-transformers."""

    def damaged(damage: Callable[[Path], object]) -> Callable[[Path], object]:
        def write(folder: Path) -> None:
            damage(tiny_bert(folder / "model"))

        return write

    def read(folder: Path) -> object:
        (folder / "out").mkdir()
        return copy_model(folder / "model", folder / "out", import_settings(folder / "model", pooling="mean"), None)

    for name, damage in MODELS.items():
        yield Case("model", name, "model", None, damaged(damage), read)


# ---- run files -----------------------------------------------------------------------------------------------------
LINE = "q1 Q0 d1 1 2.5 tag\n"
RUNS: dict[str, str | bytes] = {
    "empty": "",
    "NaN as score": LINE + "q1 Q0 d2 2 NaN tag\n",
    "infinite score": LINE + "q1 Q0 d2 2 inf tag\n",
    "a document twice": LINE + LINE,
    "an unknown document": LINE + "q1 Q0 none 2 2.0 tag\n",
    "other queries": "none Q0 d1 1 2.5 tag\n",
    "zeros": bytes(100),
    "half an archive": gzip.compress(LINE.encode() * 50)[:40],
    "archive of nothing": gzip.compress(b""),
}


RUN_LINES: dict[str, str | bytes] = {
    "five words": "q1 Q0 d1 1 2.5",
    "a number of Python as score": "q1 Q0 d2 2 1_0 tag",
    "a word as score before further words": "q1 Q0 d2 2 high tag more words",
    "a blank in a document": "q1 Q0 d 2 2 0.5 tag",
    "a word as score": "q1 Q0 d2 2 high tag",
    "a comma in the score": "q1 Q0 d2 2 2,5 tag",
    "not in UTF-8": b"q1 Q0 d\xff 1 2.5 tag",
    "JSON": '{"q1": {"d1": 2.5}}',
    "commas": "q1,Q0,d1,1,2.5,tag",
    "a header": "query iteration document rank score run",
}


def run_cases() -> Iterator[Case]:
    """Run files in TREC's format, plain or gzipped."""
    import pandas as pd
    import pyarrow as pa

    settings = ImportRunSettings(
        collection="toy", split="test", depth=10, exclude_self=False, tag="t", source="another system"
    )

    lines = {name: (text.encode() if isinstance(text, str) else text) for name, text in RUN_LINES.items()}
    faults: dict[str, tuple[str | bytes, int | None]] = {name: (text, None) for name, text in RUNS.items()}
    faults |= {name: (LINE.encode() + text + b"\n", 2) for name, text in lines.items()}
    faults |= {f"{name}, gzipped": (gzip.compress(LINE.encode() + text + b"\n"), 2) for name, text in lines.items()}
    for name, (text, line) in faults.items():
        content = text if isinstance(text, bytes) else text.encode()
        file = "run.trec.gz" if content[:2] == b"\x1f\x8b" else "run.trec"

        def write(folder: Path, file: str = file, content: bytes = content) -> None:
            (folder / file).write_bytes(content)

        def read(folder: Path, file: str = file) -> object:
            path = folder / file
            run, _ = take(read_run(path), pd.Series(["q1", "q2"]), settings, path)
            return check_documents(run, pa.array(["d1", "d2"]), path, "toy")

        yield Case("run", name, file, line, write, read)


def all_cases() -> list[Case]:
    """All malformed inputs."""
    kinds = (collection_cases, folder_cases, configuration_cases, model_cases, run_cases)
    return [case for cases in kinds for case in cases()]
