"""Training a relevance module and plugging it into domain modules, as stages; the plain model without the bench."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.unit.encoder_helpers import make_collection
from tests.unit.model_helpers import gated, vectors
from tests.unit.pretraining_helpers import params as pretraining
from tests.unit.training_helpers import finetune_spec, lay_out, make_mined, seal, tiny_model

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.config.training import InitSettings
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.encoders.publishing.card import read_chain
from zerodr.encoders.publishing.export import copy_plain_model
from zerodr.encoders.start.initial import from_checkpoint
from zerodr.errors import ModelError
from zerodr.papers.ddr.modular import ModularEncoder

REM = {"rank": 3, "bottleneck": 5}
TEXTS = ["aaaa bbbb", "", "cccc dddd eeee ffff", "x y z"]


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    lay_out(tmp_path)
    texts = [(f"d{i}", "", f"{'abcdefgh'[i % 8]}bcd efg {'klmnopqr'[i // 8 % 8]} {i}") for i in range(40)]
    make_collection(tmp_path / "results/corpus", texts)
    return tmp_path


def dam(place: str, start: str, steps: int = 4) -> None:
    """A few steps of masked language modelling."""
    inputs = {"model": f"results/{start}/manifest.json", "collections": ["results/corpus/manifest.json"]}
    run_spec(
        StageSpec(
            "pretrain",
            2,
            {"model": "tiny", "stage": place},
            inputs,
            {"model": f"results/{place}/manifest.json"},
            pretraining("mlm", {"mask_unit": "token"}, steps=steps),
            13,
            1,
        )
    )


def rem(
    place: str = "rem", start: str = "source", inputs: dict | None = None, settings: dict | None = None, **changes: Any
) -> None:
    given = {"model": f"results/{start}/manifest.json"} | (inputs or {})
    run_spec(finetune_spec(place, given, rem=REM | (settings or {}), learning_rate=0.02, **changes))


def assemble(place: str = "out", domain: str = "target", module: str = "rem", **changes: Any) -> dict[str, Any]:
    inputs = {"dam": f"results/{domain}/manifest.json", "rem": f"results/{module}/manifest.json"}
    run_spec(
        StageSpec(
            "assemble",
            1,
            {"model": "tiny", "stage": place},
            inputs,
            {"model": f"results/{place}/manifest.json"},
            changes,
            13,
            1,
        )
    )
    return read_record(f"results/{place}/manifest.json")


def made_by(folder: Path) -> np.ndarray:
    return vectors(BiEncoder.load(folder), "document", TEXTS)


def test_the_whole_way(project, caplog):
    """Source DAM, target DAM from it, a REM on the frozen source DAM, assembly; nothing is to be warned of."""
    dam("source", "init")
    dam("target", "source")
    rem()
    caplog.set_level(logging.WARNING)
    record = assemble()
    assert not caplog.records and record["notes"]["sequential"] is True
    facts = read_record("results/rem/manifest.json")["notes"]["rem"]
    assert facts["trained"] == 2 * 2 * (2 * 32 * 3) + 2 * (2 * 32 * 5 + 37) == record["notes"]["rem"]["trained"]
    difference = [point["value"] for point in record["metrics"] if point["name"] == "plain_relative_difference"]
    assert 0 < difference[0] < 1e-4
    out = project / "results/out"
    kept = ModularEncoder.load(out / "modular")
    assert np.allclose(vectors(kept, "document", TEXTS), made_by(out), atol=1e-4)
    for name, value in load_file(project / "results/target/model.safetensors").items():  # the DAM is the target's own
        assert torch.equal(load_file(out / "modular/model.safetensors")[name], value)
    for place in ("target", "source", "rem"):
        assert not np.allclose(made_by(out), made_by(project / "results" / place), atol=1e-3)
    assert not list(out.glob("**/*.bin"))
    names = [stage.name for stage in read_chain("results/out/manifest.json").stages]
    assert [name.split("/")[1] for name in names] == ["source", "rem", "target", "out"]


def test_a_rem_leaves_the_dam_as_it_is(project):
    """The modular form of a trained REM holds the very weights of its DAM; the plain form of the same run differs."""
    rem("modular", "init", settings={"fold": False})
    rem("plain", "init")
    begin, end = (load_file(project / "results" / place / "model.safetensors") for place in ("init", "modular"))
    assert set(begin) == set(end) and all(torch.equal(begin[name], end[name]) for name in begin)
    for name in ("adapter_model.safetensors", "pa.safetensors"):
        first, second = ((project / f"results/{place}/rem/{name}").read_bytes() for place in ("modular", "plain"))
        assert first == second
        assert all(value.abs().sum() > 0 for value in load_file(project / "results/plain/rem" / name).values())
    own = vectors(ModularEncoder.load(project / "results/modular"), "document", TEXTS)
    assert np.allclose(own, made_by(project / "results/plain"), atol=1e-4)


def test_a_dam_holds_no_module_of_its_parent(project):
    """After a step of DAM training on a model that a REM was trained into: a plain backbone of the DAM's shape."""
    rem("rem", "init")
    rem("modular", "init", settings={"fold": False})
    assert (project / "results/rem/rem/rem.json").exists()
    for start in ("init", "rem"):
        dam(f"after-{start}", start, steps=1)
        made = project / f"results/after-{start}"
        names, before = (set(load_file(folder / "model.safetensors")) for folder in (made, project / "results" / start))
        assert names == before and not any(".lora_" in name or ".parallel." in name for name in names)
        assert not [path for name in ("rem", "adapter_*", "pa.*") for path in made.rglob(name)]
    with pytest.raises(ModelError, match="is a modular form, a backbone with inserted modules"):
        dam("after-modular", "modular", steps=1)


def test_no_recipe_starts_from_a_modular_form(project):
    """A start whose encoder differs (other lengths) was the domain module alone, without a word."""
    rem("modular", "init", settings={"fold": False})
    start = InitSettings(init="ours/rem", pooling="mean", query_tokens=12, document_tokens=20)
    with pytest.raises(ModelError, match="is a modular form, .* which a start would leave out: start from the plain"):
        from_checkpoint(start, project / "results/modular", None, 0)


@pytest.mark.parametrize("shape", ["lora", "pa", "both", "full"])
@pytest.mark.parametrize("objective", ["info_nce", "margin_mse"])
def test_every_shape_learns_by_either_loss(project, shape, objective):
    read = {"lora": ["rank"], "pa": ["bottleneck"], "both": [*REM], "full": []}[shape]
    scored = {"scored": "results/scored/manifest.json"} if objective == "margin_mse" else {}
    if scored:
        make_mined(project / "results/scored", scored=True)
    given = {"model": "results/init/manifest.json"} | scored
    run_spec(
        finetune_spec(
            "rem",
            given,
            rem={"shape": shape} | {key: REM[key] for key in read},
            name=objective,
            steps=40,
            total_steps=40,
            learning_rate=5e-3,
            dropout=0.0,
        )
    )
    losses = [p["value"] for p in read_record("results/rem/manifest.json")["metrics"] if p["name"] == "loss"]
    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:10])
    assert (project / "results/rem/rem/rem.json").exists() == (shape != "full")


def test_without_sequential_initialisation_there_is_a_warning(project, caplog):
    dam("source", "init")
    dam("target", "init", steps=5)
    rem()
    record = assemble()
    assert record["notes"]["sequential"] is False
    assert "results/target/manifest.json" in caplog.text and "DDR\\SI" in caplog.text


def test_no_adaptation_at_all_gives_the_rem_stages_own_model(project):
    dam("source", "init")
    rem()
    record = assemble(domain="source")
    assert record["notes"]["sequential"] is True
    assert (made_by(project / "results/out") == made_by(project / "results/rem")).all()


def test_other_shapes_are_refused_with_both(project):
    rem(start="init")
    seal(tiny_model(project / "results/deep", num_hidden_layers=3))
    with pytest.raises(ModelError, match=r"\(bert, 2 feed-forward blocks, hidden size 32\).*\(bert, 3 feed"):
        assemble(domain="deep")
    with pytest.raises(ModelError, match="holds no relevance module"):
        assemble(domain="init", module="init")


def test_kept_steps_hold_their_rem(project):
    rem(start="init", save_steps=[5])
    run_spec(
        StageSpec(
            "take_step",
            1,
            {"model": "tiny", "stage": "rem.5"},
            {"model": "results/rem/manifest.json"},
            {"model": "results/rem5/manifest.json"},
            {"step": 5},
        )
    )
    record = assemble(domain="init", module="rem5")
    assert record["notes"]["sequential"] is True
    assert (made_by(project / "results/out") == made_by(project / "results/rem5")).all()
    assert not np.allclose(made_by(project / "results/out"), made_by(project / "results/rem"), atol=1e-4)


def test_gated_blocks_are_assembled_as_the_modular_form(project):
    """T5 v1.1: with fold: false of the module and of the assembly; a stage that would fold names both keys."""
    for place, seed in (("gated", 1), ("other", 2)):
        gated(project, seed).save(project / "results" / place)
        seal(project / "results" / place)
    told = (
        "gated, a plain model can't hold a parallel adapter.*set rem.fold: false, and fold: false on the stage of kind"
    )
    with pytest.raises(ModelError, match=told):
        rem("folded", "gated")
    rem("rem", "gated", settings={"fold": False})
    with pytest.raises(ModelError, match=f"{told} assemble; or rem.shape: lora"):
        assemble(domain="other")
    record = assemble(domain="other", fold=False)
    out = project / "results/out"
    assert record["notes"]["sequential"] is False and not (out / "modular").exists()
    assert json.loads((out / "zerodr.json").read_text())["modules"] == "rem"
    own = ModularEncoder.load(out)
    by_hand = ModularEncoder.of(BiEncoder.load(project / "results/other"), own.rem)
    by_hand.take(project / "results/rem/rem")
    found = vectors(own, "document", TEXTS)
    assert (found == vectors(by_hand.eval(), "document", TEXTS)).all()
    for place in ("other", "gated"):
        assert not np.allclose(found, made_by(project / "results" / place), atol=1e-3)
    encoder = load_encoder(out, device="cpu")
    tokens = encoder.tokenize(TEXTS, max_tokens=40)
    assert np.abs(encoder.encode_batch([tokens[row] for row in range(len(TEXTS))]) - found).max() < 1e-5
    with pytest.raises(
        ModelError, match="make the plain form: .*gated feed-forward blocks have one with rem.shape: lora"
    ):
        copy_plain_model(out, project / "results/copied")


def test_a_modular_form_is_not_exported(project):
    rem(start="init", settings={"fold": False})
    spec = StageSpec(
        "export_model",
        1,
        {"model": "tiny"},
        {"model": "results/rem/manifest.json"},
        {"exported": "results/exported/manifest.json"},
        {"model": "tiny", "scope": "shared"},
    )
    with pytest.raises(ModelError, match="would load without its inserted modules"):
        run_spec(spec)


ALONE = """
import sys
sys.path = [place for place in sys.path if "zerodr" not in place]
sys.modules["zerodr"] = None  # an import of it fails
import numpy as np, torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel
model = AutoModel.from_pretrained(sys.argv[1])
assert type(model).__name__ == "BertModel" and model.config.intermediate_size == 64 + 5
state = SentenceTransformer(sys.argv[1], device="cpu")
assert state.similarity_fn_name == "dot"
features = state.tokenize(sys.argv[3:])
with torch.no_grad():
    hidden = model.eval()(**features).last_hidden_state
mask = features["attention_mask"][..., None]
pooled = (hidden * mask).sum(1) / mask.sum(1)
np.save(sys.argv[2], np.stack([state.encode(sys.argv[3:]), pooled.numpy()]))
"""


def test_the_plain_model_needs_nothing_of_ours(project):
    """In a process of its own, with the bench out of reach: AutoModel and SentenceTransformer."""
    dam("target", "init")
    rem(start="init")
    assemble()
    texts = [TEXTS[0], TEXTS[2], TEXTS[3]]
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(
        [sys.executable, "-I", "-c", ALONE, "results/out", "vectors.npy", *texts],
        env=clean,
        check=True,
        cwd=project,
        timeout=120,
    )
    own = vectors(ModularEncoder.load(project / "results/out/modular"), "document", texts)
    for found in np.load(project / "vectors.npy"):
        assert np.abs(found - own).max() < 1e-4 * np.abs(own).max()
