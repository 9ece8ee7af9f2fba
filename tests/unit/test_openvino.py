"""Graphs of OpenVINO: vectors of every family, what is stored of a folder, when it is made again, what is imported."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from encoder_helpers import (
    SIZES,
    VOCABULARY,
    embed_spec,
    import_settings,
    import_spec,
    make_collection,
    save_tokenizer,
    tiny_bert,
)

from zerodr.artifacts.stage import run_spec
from zerodr.encoders.folder.contract import read_contract
from zerodr.encoders.inference import graph
from zerodr.encoders.inference.encoder import Encoder, load_encoder
from zerodr.encoders.inference.graph import content, open_converted
from zerodr.encoders.inference.token_store import call_facts
from zerodr.encoders.network.tokenizing import Call, StoredTokenizer, load_tokenizer, stored_facts
from zerodr.encoders.start.importing import copy_model

T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": len(VOCABULARY)}
WIDE = SIZES | {"max_position_embeddings": 220, "initializer_range": 0.3}
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": WIDE,
    "roberta": WIDE | {"pad_token_id": 0},
    "mpnet": WIDE | {"pad_token_id": 0},
    "electra": WIDE | {"embedding_size": 16},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": len(VOCABULARY)},
    "modernbert": SIZES | {"num_hidden_layers": 4, "local_attention": 16, "pad_token_id": 0, "cls_token_id": 2},
    "t5": T5,
    "mt5": T5,
}
TEXTS = ["a few words", "", "z", "word " * 60, "grüße [SEP] 東京 q"]


def folder_of(folder: Path, family: str = "bert", **changes: Any) -> Path:
    from transformers import AutoConfig, AutoModel

    torch.manual_seed(4)
    special = {"bos_token_id": 2, "eos_token_id": 3, "sep_token_id": 3, "decoder_start_token_id": 0}
    config = AutoConfig.for_model(family, **({} if family in ("bert", "distilbert") else special) | FAMILIES[family])
    AutoModel.from_config(config).save_pretrained(folder / "plain")
    save_tokenizer(folder / "plain")
    copy_model(folder / "plain", folder / "model", import_settings("tiny"), None)
    change_contract(folder / "model", changes)
    return folder / "model"


def change_contract(folder: Path, changes: dict[str, Any]) -> None:
    contract = json.loads((folder / "zerodr.json").read_text())
    (folder / "zerodr.json").write_text(json.dumps(contract | changes))


def rows_of(encoder: Encoder) -> list[np.ndarray]:
    tokens = encoder.tokenize(TEXTS)
    return [tokens[row] for row in range(len(TEXTS))]


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "last", "decoder_first"])
@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_of_every_family_and_pooling(tmp_path, family, pooling):
    if pooling == "decoder_first" and "t5" not in family or pooling in ("max", "last") and family != "bert":
        pytest.skip("another family's")
    folder = folder_of(tmp_path, family, pooling=pooling, normalize=family != "mpnet", similarity="dot")
    ours, plain = load_encoder(folder, device="cpu"), load_encoder(folder, device="cpu", graph=False)
    assert ours.backend.startswith("openvino 2") and plain.backend == "transformers (switched off)"
    rows = rows_of(ours)
    made, expected = ours.encode_batch(rows), plain.encode_batch(rows)
    assert made.shape == (5, 32) and made.dtype == np.float32 and np.ptp(made[:, 0]) > 1e-3
    assert abs(made - expected).max() < 3e-6 * max(1, abs(expected).max())
    for number, row in enumerate(rows):
        assert abs(ours.encode_batch([row])[0] - made[number]).max() < 1e-6 * max(1, abs(expected).max())


def test_bits_depend_on_the_batch_alone(tmp_path):
    folder = folder_of(tmp_path)
    first, rows = load_encoder(folder, device="cpu"), rows_of(load_encoder(folder, device="cpu"))
    made = [first.encode_batch(rows), first.encode_batch(rows[:2])]
    first.prepare(3)
    other = load_encoder(folder, device="cpu")
    assert np.array_equal(other.encode_batch(rows[:2]), made[1]) and np.array_equal(first.encode_batch(rows), made[0])
    assert np.array_equal(other.encode_batch(rows), made[0])


# ---- what is stored ------------------------------------------------------------------------------------------------
@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A model folder, and the folder of its graphs."""
    monkeypatch.setattr(graph, "graphs_folder", lambda: tmp_path / "graphs")
    return folder_of(tmp_path), tmp_path / "graphs"


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A model folder whose graph is stored, and its vectors; tests get copies."""
    base = tmp_path_factory.mktemp("once")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph, "graphs_folder", lambda: base / "graphs")
        return base, vectors(folder_of(base))


@pytest.fixture
def converted(once, tmp_path, monkeypatch):
    """A model folder, the folder of its graphs, in which its own is, and its vectors."""
    monkeypatch.setattr(graph, "graphs_folder", lambda: tmp_path / "graphs")
    for name in ("model", "graphs"):
        shutil.copytree(once[0] / name, tmp_path / name)
    return tmp_path / "model", tmp_path / "graphs", once[1]


def count_conversions(monkeypatch) -> list[Path]:
    made, convert = [], graph._convert

    def counted(folder: Path, contract: Any, home: Path) -> None:
        made.append(home)
        convert(folder, contract, home)

    monkeypatch.setattr(graph, "_convert", counted)
    return made


def vectors(folder: Path) -> np.ndarray:
    encoder = load_encoder(folder, device="cpu")
    assert encoder.backend.startswith("openvino ")
    return encoder.encode_batch(rows_of(encoder))


def test_a_folder_is_converted_once_even_by_jobs_that_start_together(stored, monkeypatch):
    made = count_conversions(monkeypatch)
    found: list[np.ndarray] = []
    jobs = [threading.Thread(target=lambda: found.append(vectors(stored[0]))) for _ in range(3)]
    [job.start() for job in jobs]
    [job.join() for job in jobs]
    assert len(made) == 1 and len(found) == 3 and all(np.array_equal(one, found[0]) for one in found)


@pytest.mark.parametrize("damage", ["graph.bin", "graph.xml", "facts.json", "manifest.json", "bytes", "key"])
def test_a_damaged_graph_is_made_again(converted, monkeypatch, caplog, damage):
    before = converted[2]
    (home,) = (path for path in converted[1].iterdir() if path.is_dir())
    if damage == "bytes":  # of the same size
        (home / "graph.xml").write_bytes(b" " * (home / "graph.xml").stat().st_size)
    elif damage == "key":
        facts = json.loads((home / "facts.json").read_text())
        (home / "facts.json").write_text(json.dumps({"other": facts.pop("rows")}))
    else:
        (home / damage).write_bytes((home / damage).read_bytes()[:50])
    made = count_conversions(monkeypatch)
    assert np.array_equal(vectors(converted[0]), before) and len(made) == 1 and "is made again" in caplog.text
    assert np.array_equal(vectors(converted[0]), before) and len(made) == 1


def test_another_content_has_another_graph(stored, monkeypatch):
    folder, made = stored[0], count_conversions(monkeypatch)
    before = vectors(folder)
    for source in (tiny_bert(folder.with_name("other"), seed=9, max_position_embeddings=220), None):
        if source is None:
            change_contract(folder, {"pooling": "cls"})
        else:
            shutil.copy(source / "model.safetensors", folder)
        assert abs(vectors(folder) - before).max() > 1e-3
    assert len(made) == 3 and len([path for path in stored[1].iterdir() if path.is_dir()]) == 3


def test_a_manifest_supplies_digests_of_files_that_did_not_change(stored, monkeypatch):
    folder = stored[0]
    read, seen = graph.file_digest, []
    contract = read_contract(folder)
    plain = content(folder, contract)
    graph.seal_folder(folder)
    monkeypatch.setattr(graph, "file_digest", lambda path: seen.append(path.name) or read(path))
    assert content(folder, contract) == plain and seen == []
    (folder / "config.json").write_text((folder / "config.json").read_text().replace("gelu", "relu"))
    os.utime(folder / "config.json", (2e9, 2e9))
    assert content(folder, contract) != plain and seen == ["config.json"]


def test_what_a_killed_job_left_is_no_obstacle(converted):
    before = converted[2]
    (home,) = (path for path in converted[1].iterdir() if path.is_dir())
    home.rename(home.with_name(f".{home.name}.making"))
    assert np.array_equal(vectors(converted[0]), before) and home.is_dir()
    assert not home.with_name(f".{home.name}.making").exists()


def test_without_room_or_folder_a_job_converts_for_itself_and_gets_the_same_bits(converted, monkeypatch, caplog):
    caplog.set_level("INFO", "zerodr")
    before = converted[2]
    shutil.rmtree(converted[1])
    monkeypatch.setattr(graph, "SHARE", 0)
    assert np.array_equal(vectors(converted[0]), before) and "a tenth of the free disk" in caplog.text
    assert [path.name for path in converted[1].iterdir()] == ["lock"]
    monkeypatch.setattr(graph, "graphs_folder", lambda: converted[0] / "config.json")
    assert np.array_equal(vectors(converted[0]), before) and "is not stored: [Errno" in caplog.text


@pytest.mark.parametrize("share", [1, 0])
def test_a_folder_gets_its_graph_with_and_without_room_for_it_elsewhere(converted, monkeypatch, share):
    before = converted[2]
    shutil.rmtree(converted[1])
    monkeypatch.setattr(graph, "SHARE", share)
    assert graph.ship_graph(converted[0])
    shutil.rmtree(converted[1])
    assert np.array_equal(vectors(converted[0]), before) and not converted[1].exists()


def test_graphs_that_nobody_used_for_a_day_make_room(converted, monkeypatch):
    (home,) = (path for path in converted[1].iterdir() if path.is_dir())
    monkeypatch.setattr(graph, "SHARE", 0)
    assert not graph._make_room(converted[1], 1) and home.is_dir()
    os.utime(home, (1, 1))
    assert not graph._make_room(converted[1], 1) and not home.is_dir()


def test_what_openvino_does_not_convert_runs_in_transformers_and_is_not_tried_again(stored, monkeypatch):
    import openvino

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no such operator\nmore")

    monkeypatch.setattr(openvino, "convert_model", refuse)
    made = count_conversions(monkeypatch)
    encoders = [load_encoder(stored[0], device="cpu") for _ in range(2)]
    assert encoders[1].backend == "transformers (OpenVINO does not convert it: no such operator)" and len(made) == 1
    plain = load_encoder(stored[0], device="cpu", graph=False)
    assert np.array_equal(encoders[1].encode_batch(rows_of(plain)), plain.encode_batch(rows_of(plain)))


def test_a_decoder_whose_operators_openvino_lacks_runs_in_transformers(tmp_path, monkeypatch):
    monkeypatch.setattr(graph, "GRAPHS", tmp_path / "graphs")
    monkeypatch.setitem(FAMILIES, "gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": len(VOCABULARY)})
    folder, level = folder_of(tmp_path, "gpt2", pooling="last"), logging.getLogger().level
    encoder, plain = load_encoder(folder, device="cpu"), load_encoder(folder, device="cpu", graph=False)
    assert encoder.backend.startswith("transformers (OpenVINO does not convert it: ")
    assert logging.getLogger().level == level
    assert np.array_equal(encoder.encode_batch(rows_of(plain)), plain.encode_batch(rows_of(plain)))


def test_a_graph_with_other_vectors_is_refused(stored, monkeypatch):
    monkeypatch.setattr(graph, "NEAR", -1.0)
    assert load_encoder(stored[0], device="cpu").backend == "transformers (OpenVINO gives other vectors)"


# ---- tokenizers, imports -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("call", [Call(), Call("query: ", 7), Call("", 64, True), Call("", 5, True)])
def test_a_stored_tokenizer_gives_the_tokens_of_transformers(tmp_path, side, call):
    tiny_bert(tmp_path)
    plain = load_tokenizer(tmp_path)
    plain.truncation_side = side
    plain.backend_tokenizer.normalizer = None
    texts = [*TEXTS, "Mixed CASE [MASK] words", "x" * 300]
    stored = StoredTokenizer(json.loads(json.dumps(stored_facts(plain, TEXTS))))
    assert call.ids(stored, texts) == call.ids(plain, texts) and len(call.ids(stored, texts)) == 7
    assert call_facts(stored, call) == call_facts(plain, call) and stored.pad_token_id == plain.pad_token_id


def test_special_tokens_that_are_split_stay_split(tmp_path):
    tiny_bert(tmp_path)
    plain = load_tokenizer(tmp_path)
    plain.split_special_tokens = True
    facts = stored_facts(plain, TEXTS)
    assert facts is None or Call(limit=64).ids(StoredTokenizer(facts), TEXTS) == Call(limit=64).ids(plain, TEXTS)
    assert stored_facts(object(), TEXTS) is None


MODULES = """
import sys
from pathlib import Path
from zerodr.artifacts.stage import load_spec, run_spec
run_spec(load_spec(Path(sys.argv[1])))
print(*sorted(name for name in sys.modules if "." not in name))
"""
HEAVY = (
    "torch transformers safetensors sentence_transformers huggingface_hub scipy sklearn faiss numba mlflow snakemake"
)


def test_a_job_that_embeds_imports_neither_torch_nor_transformers_and_sends_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_bert(tmp_path / "source")
    run_spec(import_spec(str(tmp_path / "source")))
    documents = [(f"d{number}", "", "some words " * number) for number in range(9)]
    make_collection(tmp_path / "results/collections/small", documents, [("q", "some words")])
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports/openvino_telemetry.py").write_text("raise SystemExit('reports are sent')")
    spec, found = tmp_path / "spec.json", []
    library = {"PYTHONPATH": f"{tmp_path / 'reports'}:{Path(__file__).parents[2] / 'workflow/scripts'}"}
    for part in ("corpus", "queries"):
        spec.write_text(json.dumps(vars(embed_spec("small", part))))
        words = [sys.executable, "-c", MODULES, str(spec)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | library)
        assert done.returncode == 0, done.stderr
        found.append(set(done.stdout.split()))
    assert {"torch", "transformers", "openvino"} <= found[0], "it converts"
    assert "openvino" in found[1] and not found[1] & set(HEAVY.split())


def test_both_towers_have_graphs(tmp_path, monkeypatch):
    monkeypatch.setattr(graph, "graphs_folder", lambda: tmp_path / "graphs")
    folder = folder_of(tmp_path)
    contract = read_contract(folder)
    for side in ("query", "document"):
        shutil.copytree(folder, tmp_path / "two" / side)
    graph.seal_folder(tmp_path / "two")
    made = [open_converted(tmp_path / "two" / side, contract) for side in ("query", "document")]
    assert all(one.graph and one.tokenizer for one in made)
    assert len([path for path in (tmp_path / "graphs").iterdir() if path.is_dir()]) == 1, "of one content"


def test_numpy_is_looked_up_before_threads_compute(monkeypatch):
    """Two threads at the first use of an array waited for each other for good: one for the GIL, one for a lock."""
    used = []

    class Tensor:
        def __init__(self, array):
            self.array = array

        @property
        def data(self):
            used.append(graph.FIRST_USE.locked())
            return self.array

    monkeypatch.setattr(graph.importlib, "import_module", lambda name: SimpleNamespace(Tensor=Tensor))
    graph.openvino()
    assert used == [True]


SIGNALS = """
import gc, signal
import numpy as np
from zerodr.encoders.inference.graph import Graph, openvino

openvino()
from openvino import Model, PartialShape, Type, opset13 as ops

def network():
    ids = ops.parameter(PartialShape([-1, -1]), Type.i64)
    return Model([ops.convert(ids, "f32")], [ids], "identity")

signal.signal(signal.SIGTERM, lambda *_: print("told", flush=True))
graphs = [Graph(network(), 10) for _ in range(3)]
for graph in graphs:
    graph(np.ones((1, 2), np.int64))
graph = None
while graphs:
    del graphs[0]
    gc.collect()
    signal.raise_signal(signal.SIGTERM)
"""


def test_signals_are_told_after_graphs_have_gone(tmp_path):
    words = [sys.executable, "-P", "-X", "faulthandler", "-c", SIGNALS]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "told\n" * 3), done.stderr
