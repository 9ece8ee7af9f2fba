"""Export: the folder loads with sentence-transformers, and its card tells where the model came from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from encoder_helpers import tiny_bert
from model_helpers import TEXTS, cosines, relative_files, shaken, tiny_collection, tiny_model, vectors

from zerodr.artifacts.stage import Stage, StageSpec, run_spec
from zerodr.config.base import validate
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.network.trainable import BiEncoder, trained_parameters
from zerodr.encoders.publishing.export import agreement, export_model
from zerodr.encoders.start.importing import ImportSettings, copy_model
from zerodr.errors import ModelError
from zerodr.training.kinds import init_model

COLLECTION = "results/collections/squad-tiny/manifest.json"
INIT, EP0 = (f"results/models/dpr/shared/{stage}/manifest.json" for stage in ("init", "ep0"))
EXPORTED = "results/exported/dpr/shared/manifest.json"
SHAPE = {"family": "bert", "hidden": 32, "layers": 2, "heads": 4, "vocabulary": 400}
TRAINING = {"title_join": " ", "stage": "ep0", "training": {"learning_rate": 2e-05, "steps": 3}}
LICENCES = {"squad-tiny": "CC BY-SA 4.0", "elsewhere": "MIT"}


def normalize(stage: Stage) -> None:
    tiny_collection(stage.output("collection"))


def train_a_little(stage: Stage) -> None:
    model = BiEncoder.load(stage.path("model"))
    with torch.no_grad():
        for _, weight in trained_parameters(model):
            weight += 0.01
    model.save(stage.output("model"))
    (stage.output("model") / "optimizer").mkdir()
    (stage.output("model") / "optimizer/moments.safetensors").write_bytes(b"not part of the model")
    for step in range(3):
        stage.metric("loss", 1 / (1 + step), step)
    stage.metric("dev_ndcg_cut_10", 0.25)
    stage.metric("steps_per_second", 99.0)


def run(rule: str, function, inputs: dict, outputs: dict, **params: object) -> None:
    run_spec(StageSpec(rule, 1, {}, inputs, outputs, params, 3), function)


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A checkout with one collection, an initial model and one stage of training."""
    monkeypatch.chdir(tmp_path)
    run("normalize_collection", normalize, {}, {"collection": COLLECTION}, name="squad-tiny")
    run(
        "init_model",
        init_model,
        {"source": COLLECTION},
        {"model": INIT},
        init="scratch",
        architecture=SHAPE,
        query_tokens=12,
        document_tokens=40,
    )
    run("finetune", train_a_little, {"model": INIT, "source": COLLECTION}, {"model": EP0}, **TRAINING)
    return tmp_path


def export(model: str = EP0, **inputs: str) -> Path:
    run(
        "export_model",
        export_model,
        {"model": model, **inputs},
        {"exported": EXPORTED},
        model="dpr",
        scope="shared",
        licences=LICENCES,
    )
    return Path(EXPORTED).parent


def test_an_exported_model_keeps_its_bytes_and_loads_everywhere(trained):
    from sentence_transformers import SentenceTransformer

    folder, source = export(), Path(EP0).parent
    files = relative_files(folder)
    added = {"README.md", "manifest.json", "lineage.json", ".manifest.published.json"}
    same = {name: data for name, data in files.items() if name not in added}
    assert same == {n: d for n, d in relative_files(source).items() if n not in added and not n.startswith("optimizer")}
    ours = vectors(BiEncoder.load(source), "document")
    theirs = SentenceTransformer(str(folder), device="cpu").encode_document(TEXTS)
    assert cosines(theirs, ours).min() > 0.99999 and load_encoder(folder, device="cpu").backend.startswith("openvino ")
    metrics = json.loads(files["lineage.json"])["metrics"]
    assert [m["name"] for m in metrics] == ["sentence_transformers_min_cosine"] and metrics[0]["value"] > 0.99999


def test_the_card_tells_base_data_settings_metrics_and_protocol(trained):
    text = (export() / "README.md").read_text()
    front = yaml.safe_load(text.split("---")[1])
    assert front["library_name"] == "sentence-transformers" and "base_model" not in front
    for line in (
        "# dpr",
        "* starts from: random weights (bert, 2 layers of width 32)",
        "* stages: dpr@init -> dpr@ep0",
        "| squad-tiny | CC BY-SA 4.0 |",
        "* pooling: first token",
        "queries 12, documents 40 tokens",
        "* a document is its title, ' ', and its text",
        "learning_rate: 2.0e-05",
        "Rule `finetune`, seed 3.",
        "| loss | 0.333333 |",
        "| dev_ndcg_cut_10 | 0.25 |",
        "model.encode_query(",
        "needs sentence-transformers 6.0 or newer: older ones don't know `query_length` and `document_length`, and end",
        "\n## Use\n",
    ):
        assert line in text, line
    assert "MoMA" not in text and "elsewhere" not in text and "per_second" not in text and str(trained) not in text


def test_equal_inputs_give_equal_cards(trained):
    first = (export() / "README.md").read_bytes()
    shutil.rmtree("results/exported")
    assert (export() / "README.md").read_bytes() == first


def test_results_join_the_card(trained):
    Path("results/beir").mkdir()
    Path("results/beir/dpr.tsv").write_text("# a remark\nmethod\tscifact\tmean\nDPR\t0.5\t0.5\n")
    text = (export(table="results/beir/dpr.tsv") / "README.md").read_text()
    assert "| method | scifact | mean |\n|---|---|---|\n| DPR | 0.5 | 0.5 |" in text


def test_a_model_without_records_still_gets_a_card(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_model(tmp_path, "t5", pooling="decoder_first").save(Path(EP0).parent)
    Path(EP0).write_text('{"files": []}')
    text = (export() / "README.md").read_text()
    assert "No records of its stages." in text and "the decoder's state at its start token" in text


@pytest.mark.parametrize("removed", [False, True])
def test_the_card_names_a_repository_of_the_hub_and_no_folder_as_base_model(tmp_path, monkeypatch, removed):
    monkeypatch.chdir(tmp_path)
    tiny_bert(Path("models/mine"))
    words = {"init": "models/mine", "query_tokens": 12, "document_tokens": 40}
    run("init_model", init_model, {}, {"model": INIT}, **words)
    if removed:  # then the name is one of the hub, as far as anybody knows
        shutil.rmtree("models")
    text = (export(INIT) / "README.md").read_text()
    assert ("base_model: models/mine" in text) == removed and "* starts from: models/mine" in text


@pytest.mark.parametrize(("family", "more"), [("bert", {"towers": "separate"}), ("t5", {"pooling": "decoder_first"})])
def test_an_exported_model_can_be_imported_again(tmp_path, monkeypatch, family, more):
    monkeypatch.chdir(tmp_path)
    model = shaken(tiny_model(tmp_path, family, **more))
    model.save(Path(EP0).parent)
    Path(EP0).write_text('{"files": []}')
    nothing = dict.fromkeys(("revision", "pooling", "normalize", "query_prefix", "document_prefix", "max_tokens"))
    settings = validate(ImportSettings, {"model": "exported"} | nothing, "test")
    contract, assumed = copy_model(export(), tmp_path / "again", settings, None)
    assert (contract.source, assumed) == ("exported", [])
    again = BiEncoder.load(tmp_path / "again")
    for side in ("query", "document"):
        assert np.array_equal(vectors(again, side), vectors(model, side))


def test_another_result_of_sentence_transformers_is_noticed(tmp_path):
    tiny_model(tmp_path).save(tmp_path / "m")
    assert agreement(tmp_path / "m", TEXTS) > 0.99999
    path = tmp_path / "m/1_Pooling/config.json"
    path.write_text(path.read_text().replace('"pooling_mode_cls_token": true', '"pooling_mode_max_tokens": true'))
    with pytest.raises(ModelError, match="gives other vectors .cosine"):
        agreement(tmp_path / "m", TEXTS)
