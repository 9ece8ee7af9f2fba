"""The most downloaded public models: each is a row and a start that trains and exports, or is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoder_helpers import import_spec, tiny_bert
from layout_helpers import REFUSED, listed
from published_models import LAYOUTS, OTHERS, publish, table_of_methods, table_of_models
from safetensors.numpy import load_file
from tests.unit.training_helpers import finetune_spec, make_mined, make_source

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.config.counterparts import OtherStart, with_start
from zerodr.encoders.folder.checkpoint import count_weights
from zerodr.encoders.folder.contract import SIDES
from zerodr.encoders.inference import peer
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.publishing.export import agreement
from zerodr.encoders.start import importing, other
from zerodr.encoders.start.convert import convert_checkpoint
from zerodr.encoders.start.initial import init_bi_encoder
from zerodr.encoders.start.other import read_start
from zerodr.errors import ModelError

TAKEN = [name for name, layout in LAYOUTS.items() if not layout.refused]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project folder with a source and its mined queries."""
    root = tmp_path_factory.mktemp("models")
    make_source(root / "results/source")
    make_mined(root / "results/mined", scored=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        yield root


def published(name: str, home: Path) -> Path:
    folder = publish(name, home / name)
    if not LAYOUTS[name].convert:
        return folder
    convert_checkpoint(folder, home / f"{name}-converted")
    return home / f"{name}-converted"


def recipe(start: OtherStart) -> dict[str, Any]:
    """Settings of `adapt` from another start, of a size for tests."""
    lengths = {"query_tokens": 24, "document_tokens": 40}
    objective = {"name": "kl", "negatives_per_query": 2, "inverse_temperature": 20.0}
    training = {"steps": 2, "batch_queries": 4, "learning_rate": 1e-3, "dropout": 0.0, "dev_queries": 0}
    stage = {"objective": objective, "training": training}
    settings = {"encoder": lengths, "chain": {"distil": stage}}
    written = {"adapt": {"kind": "trained", "label": "adapt", "start": "minilm", "settings": settings}}
    change = with_start(written, start)[0]["adapt"]["variants"][start.name]["settings"]
    merged = {key: stage[key] | change["chain"].get("distil", {}).get(key, {}) for key in stage}
    return {"encoder": lengths | change["encoder"], **merged}


def trained(start: OtherStart, name: str) -> Path:
    """Run the stages init_model and finetune."""
    settings, model = recipe(start), f"results/{name}"
    run_spec(
        StageSpec("init_model", 1, {}, {}, {"model": f"{model}/init/manifest.json"}, settings["encoder"], 3),
        init_bi_encoder,
    )
    inputs = {"model": f"{model}/init/manifest.json", "scored": "results/mined/manifest.json"}
    spec = finetune_spec(f"{name}/ep0", inputs, None, name="kl", total_steps=2, **settings["training"])
    spec.params["settings"]["objective"] = settings["objective"]
    run_spec(spec)
    return Path(model) / "ep0"


@pytest.mark.parametrize("name", TAKEN)
def test_a_published_model_is_a_row_and_a_start(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of the row are those of the published folder, and of the export those of sentence-transformers."""
    folder = published(name, home)
    monkeypatch.setattr(other, "LARGE", 0 if LAYOUTS[name].large else other.LARGE)
    compared = importing.MINIMUM_COSINE
    monkeypatch.setattr(importing, "MINIMUM_COSINE", 0.99999)
    start = read_start(str(folder), True)
    assert compared < 0.99999 and start.large == LAYOUTS[name].large
    run_spec(import_spec(str(folder), name=name))
    row = Path(f"results/models/{name}/shared/imported")
    assert agreement(row) > 0.99999, "the row, exported"
    made = trained(start, name)
    assert agreement(made) > 0.99999, "the start, exported"
    before, after = (load_encoder(path, device="cpu", graph=False) for path in (row, made))
    assert after.contract.max_tokens == before.contract.max_tokens
    assert [after.contract.prefix(side) for side in SIDES] == [before.contract.prefix(side) for side in SIDES]
    texts = list(peer.EASY[1:])
    old, new = (one.encode_batch([*one.tokenize(texts, max_tokens=40)]) for one in (before, after))
    assert old.shape == new.shape and np.isfinite(new).all() and not np.array_equal(old, new), "it was trained"
    layout = LAYOUTS[name]
    assert after.contract.similarity == (layout.similarity or ("cosine" if layout.modules else "dot"))


@pytest.mark.parametrize("name", [name for name in LAYOUTS if LAYOUTS[name].refused])
def test_a_published_model_is_refused_before_a_weight_is_read(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, read = published(name, home), list[Any]()
    forbid(monkeypatch, read)
    for take in (read_start, lambda model, offline: run_spec(import_spec(model, name=name))):
        with pytest.raises(ModelError, match=LAYOUTS[name].refused):
            take(str(folder), True)
    assert not read


def forbid(monkeypatch: pytest.MonkeyPatch, read: list[Any]) -> None:
    """Note each reading of weights."""
    from transformers import PreTrainedModel

    for home, name in ((importing.checkpoint, "check_weights"), (PreTrainedModel, "from_pretrained")):
        note: Callable[..., Any] = lambda *given, **more: read.append(given)  # noqa: E731
        monkeypatch.setattr(home, name, note)


@pytest.mark.parametrize("name", OTHERS)
def test_other_kinds_are_refused_with_the_sentence_of_the_page(name: str, home: Path) -> None:
    layout, said = OTHERS[name]
    folder = tiny_bert(home / layout)
    listed(folder)
    REFUSED[layout][0](folder)
    with pytest.raises(ModelError) as error:
        read_start(str(folder), True)
    assert said in str(error.value)


def test_weights_of_a_refused_model_of_the_hub_are_not_downloaded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[str, ...]]()

    def download(name: str, allow_patterns: list[str], **_: Any) -> str:
        asked.append(tuple(allow_patterns))
        return str(home / "hub" / name)

    name = "jinaai/jina-embeddings-v3"
    published(name, home / "hub")
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    monkeypatch.setattr(Path, "is_dir", lambda path: False)
    with pytest.raises(ModelError, match=r"names the class custom_st.Transformer"):
        read_start(name, True)
    assert asked == [("*.json",)]


@pytest.mark.parametrize("table", [table_of_models, table_of_methods])
def test_the_page_holds_what_these_tests_try(table: Callable[[], list[str]], root: Path) -> None:
    assert "\n".join(table()) in (root / "docs/models.md").read_text(encoding="utf-8")


def test_weights_are_counted_by_their_shapes(home: Path) -> None:
    folder = publish("intfloat/e5-base-v2", home / "counted")
    weights = load_file(folder / "model.safetensors")
    assert count_weights(folder) == sum(array.size for array in weights.values())
