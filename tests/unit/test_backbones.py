"""Stages of the methods with backbones of other families: each trains and exports, or says why it can't."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from published_models import BACKBONES, CANNOT, CONDENSER, LAYOUTS, METHODS, POOLINGS, publish
from tests.unit import adversary_helpers, pretraining_helpers, unit_helpers
from tests.unit.test_udalm import spec as words_spec
from tests.unit.test_unit_training import mined_rows
from tests.unit.test_unit_training import spec as units_spec
from tests.unit.test_weighting_training import IDRO, make_clusters
from tests.unit.training_helpers import QUERIES, finetune_spec, lay_out, make_mined
from tests.unit.word_probe import lay_out_both
from tiny_networks import WIDTH

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.encoders.folder.contract import read_contract
from zerodr.encoders.publishing.export import agreement
from zerodr.encoders.start.initial import init_bi_encoder
from zerodr.errors import ConfigError, ModelError

Start = Callable[[], None]
SHORT = {"steps": 2, "learning_rate": 1e-4}
FEW = SHORT | {"total_steps": 2}
EP0 = "results/ep0"
RMS_NORMED = ("qwen3", "gemma3_text", "t5")


def dpr(root: Path, start: Start) -> str:
    lay_out(root)
    start()
    run_spec(finetune_spec(**FEW))
    return EP0


def modir(root: Path, start: Start) -> str:
    lay_out(root)
    adversary_helpers.make_target(root / "results/target")
    start()
    run_spec(adversary_helpers.spec(**FEW))
    return EP0


def berm(root: Path, start: Start) -> str:
    unit_helpers.lay_out(root)
    make_mined(root / "results/mined", rows=mined_rows())
    start()
    unit_helpers.segment()
    unit_helpers.label()
    contract = read_contract(root / "results/init")
    raw = contract.dimension == WIDTH
    run_spec(units_spec(berm={} if raw else {"unit_space": "head"}, **FEW))
    return EP0


def idro(root: Path, start: Start) -> str:
    lay_out(root)
    make_clusters(root / "results/clusters", [(f"q{i}", 2 * (i % 5)) for i in range(QUERIES)])
    start()
    made = finetune_spec("ep0", {"clusters": "results/clusters/manifest.json"}, name="pairwise_nll", **FEW)
    family = json.loads((root / "results/init/config.json").read_text())["model_type"]
    other = {"similarity": "dot", "layers": "all"} if family in RMS_NORMED else {}
    made.params["settings"] |= {"groups": IDRO | other, "clusters": {}}
    run_spec(made)
    return EP0


def pretrained(root: Path, start: Start, name: str, head_layers: int | None = None) -> str:
    pretraining_helpers.lay_out(root)
    start()
    objective = {} if head_layers is None else {"head_layers": head_layers}
    run_spec(pretraining_helpers.pretrain_spec(name=name, objective=objective, **SHORT))
    return "results/coco"


def masked_words(root: Path, start: Start) -> str:
    lay_out_both(root)
    start()
    run_spec(words_spec(**FEW))
    return EP0


def rem(root: Path, start: Start) -> str:
    lay_out(root)
    start()
    made = finetune_spec(**FEW)
    made.params["settings"]["rem"] = {"shape": "lora", "rank": 2}
    run_spec(made)
    return EP0


STAGES: dict[str, Callable[[Path, Start], str]] = {
    "a contrastive loss or distillation: `dpr`, `ance`, `kd`, `adapt`, `adapt-query`": dpr,
    "MoDIR's adversary": modir,
    "BERM's units": berm,
    "iDRO's groups": idro,
    "COCO with Condenser's head": lambda root, start: pretrained(root, start, "coco"),
    "COCO without head (`head_layers: 0`)": lambda root, start: pretrained(root, start, "coco", 0),
    "masked words: DDR's DAM, `udalm`": masked_words,
    "DDR's relevance module": rem,
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("published")
    return {name: publish(name, home / name) for name in BACKBONES.values()}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_method_trains_a_backbone_or_says_why_not(
    backbone: str, method: str, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    name, said = BACKBONES[backbone], CANNOT.get((backbone, method))
    layout = LAYOUTS[name]

    def start() -> None:
        pooling = POOLINGS.get(layout.pooling, layout.pooling)
        pooling = "cls" if method == CONDENSER and pooling == "mean" and layout.network != "t5" else pooling
        settings = {"init": str(folders[name]), "pooling": pooling, "similarity": "dot", "max_tokens": 200}
        settings |= {"query_tokens": 24, "document_tokens": 190, "head": "kept" if layout.dense else "none"}
        model = {"model": "results/init/manifest.json"}
        for path in Path("results/init").glob("*"):
            path.unlink() if path.is_file() else None
        run_spec(StageSpec("init_model", 1, {}, {}, model, settings, 3), init_bi_encoder)

    if said is None:
        assert agreement(Path(STAGES[method](tmp_path, start))) > 0.99999
        return
    with pytest.raises((ModelError, ConfigError), match=re.escape(said)) as error:
        STAGES[method](tmp_path, start)
    assert "\n" not in str(error.value)


def test_every_method_of_the_table_is_tried() -> None:
    assert list(STAGES) == list(METHODS)
    assert set(CANNOT) <= {(backbone, method) for backbone in BACKBONES for method in METHODS}
