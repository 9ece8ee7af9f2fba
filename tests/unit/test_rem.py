"""DDR's relevance module: small examples, sizes, merges, frozen backbones, families, files, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from pydantic import ValidationError
from tests.unit.config_helpers import copy_config, lab_plan
from tests.unit.model_helpers import TEXTS, gated, tiny_model, vectors
from torch import nn
from torch.nn import functional

from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.network.heads import POOLINGS
from zerodr.encoders.network.trainable import BiEncoder, trained_parameters
from zerodr.errors import ConfigError, ModelError
from zerodr.papers.ddr import inserting
from zerodr.papers.ddr.folders import REM, read_rem, shape_of
from zerodr.papers.ddr.folding import _widen, check_folding, folded, merge_lora
from zerodr.papers.ddr.inserting import ParallelAdapter, insert
from zerodr.papers.ddr.modular import ModularEncoder, difference
from zerodr.papers.ddr.settings import RemSettings

SMALL = {"rank": 3, "bottleneck": 5}
FAMILIES = ("bert", "roberta", "distilbert", "t5")


def settings(shape: str = "both", **changes) -> RemSettings:
    unread = {"lora": {"bottleneck"}, "pa": {"rank"}}.get(shape, set())
    return RemSettings(**({"shape": shape} | {k: v for k, v in SMALL.items() if k not in unread} | changes))


def stirred(model: ModularEncoder, seed: int = 3) -> ModularEncoder:
    """Every weight of the modules moved from its start."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, weight in trained_parameters(model):
            weight += 0.2 * torch.randn(weight.shape, generator=generator)
    return model


def modular(tmp_path: Path, family: str = "bert", shape: str = "both", **changes) -> ModularEncoder:
    pooling = "mean" if family == "t5" else "cls"
    return stirred(ModularEncoder.of(tiny_model(tmp_path, family, pooling=pooling), settings(shape, **changes))).eval()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(2, 2)
        self.query.weight.data = torch.tensor([[1.0, 2], [3, 4]])
        self.query.bias.data = torch.tensor([0.5, -0.5])


def test_lora_merges():
    from peft import LoraConfig, inject_adapter_in_model

    x = torch.tensor([3.0, 1])
    for alpha, expected in ((1, [9.5, 14.5]), (2, [5.5 + 8, 12.5 + 4])):
        holder = nn.ModuleDict({"self": Attention()})
        inject_adapter_in_model(LoraConfig(r=1, lora_alpha=alpha, target_modules=["query"]), holder)
        layer = holder["self"].query
        layer.lora_A["default"].weight.data = torch.tensor([[1.0, -1]])
        layer.lora_B["default"].weight.data = torch.tensor([[2.0], [1]])
        assert layer(x).tolist() == expected
        merge_lora(holder)
        assert type(holder["self"].query) is nn.Linear and holder["self"].query(x).tolist() == expected
        if alpha == 1:
            assert holder["self"].query.weight.tolist() == [[3, 0], [4, 3]]


def example() -> tuple[ParallelAdapter, torch.Tensor]:
    adapter = ParallelAdapter(4, RemSettings(shape="pa", bottleneck=2))
    adapter.down.weight.data = torch.tensor([[1.0, 0, 0, 1], [0, 1, -1, 0]])
    adapter.down.bias.data = torch.tensor([0.5, 0])
    adapter.up.weight.data = torch.tensor([[1.0, 0], [0, 1], [0.5, 0], [-1, 2]])
    adapter.up.bias.data = torch.tensor([0, 0.1, 0, -0.1])
    return adapter, torch.tensor([1.0, -1, 2, 0])


def test_the_parallel_adapter():
    adapter, h = example()
    assert adapter(h).tolist() == pytest.approx([6, 0.4, 3, -6.4])
    total = torch.tensor([0.2, 0.4, -0.6, 0.8]) + adapter(h) + h
    assert total.tolist() == pytest.approx([7.2, -0.2, 4.4, -5.6])
    normed = functional.layer_norm(total, (4,), eps=1e-12)
    assert normed.tolist() == pytest.approx([1.184937, -0.340026, 0.607924, -1.452836], abs=1e-6)


@pytest.mark.parametrize(
    "k, expected, error",
    [
        (1, [5.599156, 0.383799, 2.799578, -6.031559], 0.4008),
        (16, [6, 0.4, 3, -6.4], 1e-5),
        (1024, [6, 0.4, 3, -6.4], 1e-5),
    ],
)
def test_relu_by_a_wider_gelu(k, expected, error):
    """The block's own units are all zero, so that only the adapter's remain."""
    adapter, h = example()
    host = nn.Module()
    inward, outward = nn.Linear(4, 3), nn.Linear(3, 4)
    for weight in (*inward.parameters(), *outward.parameters()):
        weight.data.zero_()
    inserting._attach(inserting.Block(host, False, inward, outward), adapter)
    assert _widen(inserting.Block(host, False, inward, outward), k) == 5
    made = outward(functional.gelu(inward(h)))
    assert made.tolist() == pytest.approx(expected, abs=1e-5)
    assert float((made - adapter(h)).detach().abs().max()) == pytest.approx(error, abs=1e-4)
    assert not hasattr(host, "parallel") and not host._forward_hooks


@pytest.mark.parametrize("family", FAMILIES)
def test_fresh_modules_change_nothing(tmp_path, family):
    pooling = "mean" if family == "t5" else "cls"
    plain = vectors(tiny_model(tmp_path, family, pooling=pooling), "document")
    model = ModularEncoder.of(tiny_model(tmp_path, family, pooling=pooling), settings())
    assert (vectors(model, "document") == plain).all()
    assert not np.allclose(vectors(stirred(model), "document"), plain, atol=0.01)


def test_parameters_of_bert_base():
    from transformers import BertConfig, BertModel

    found = {}
    for shape in ("lora", "pa"):
        with torch.device("meta"):
            transformer = BertModel(BertConfig())
            insert(transformer, RemSettings(shape=shape), 1)
        found[shape] = inserting.counts(transformer)
        trained = sum(weight.numel() for weight in transformer.parameters() if weight.requires_grad)
        assert trained == found[shape]["lora"] + found[shape]["parallel_adapter"]
    assert (found["lora"]["lora"], found["pa"]["parallel_adapter"]) == (7_077_888, 3_550_464)
    assert found["lora"]["backbone"] == found["pa"]["backbone"] == 109_482_240
    shares = [100 * count / 109_482_240 for count in (7_077_888, 3_550_464, 7_077_888 + 3_550_464)]
    assert shares == pytest.approx([6.465, 3.243, 9.708], abs=5e-4)


def test_facts_tell_the_models_own_ratios(tmp_path):
    facts = modular(tmp_path).facts()
    lora, adapter = 2 * (2 * 32 * 3) * 2, (32 * 5 + 5 + 5 * 32 + 32) * 2
    assert (facts["lora"], facts["parallel_adapter"], facts["trained"]) == (lora, adapter, lora + adapter)
    assert facts["trained_share"] == pytest.approx((lora + adapter) / facts["backbone"])


def test_a_merge_adds_the_same_to_any_backbone(tmp_path):
    deltas = []
    for seed in (1, 2):
        base = tiny_model(tmp_path, seed=seed)
        before = base.tower("document").transformer.encoder.layer[0].attention.self.query.weight.detach().clone()
        made = stirred(ModularEncoder.of(base, settings("lora"))).plain()
        deltas.append(made.tower("document").transformer.encoder.layer[0].attention.self.query.weight - before)
    assert torch.allclose(*deltas, atol=1e-7) and deltas[0].abs().max() > 0.01


def test_merged_is_pefts_own_merge_and_the_formula(tmp_path):
    model = modular(tmp_path, shape="lora")
    model.rem = model.rem.model_copy(update={"fold": False})
    model.save(tmp_path / "m")
    from peft import PeftModel
    from transformers import AutoModel

    theirs = PeftModel.from_pretrained(AutoModel.from_pretrained(tmp_path / "m"), tmp_path / "m" / REM).eval()
    features = model.pad(model.tokenize(TEXTS, "document"))
    with torch.no_grad():
        unmerged = theirs(**features).last_hidden_state[:, 0]
        merged = theirs.merge_and_unload().eval()(**features).last_hidden_state[:, 0]
    ours = vectors(model.plain(), "document")
    assert np.abs(ours - unmerged.numpy()).max() < 2e-6 and np.abs(ours - merged.numpy()).max() < 2e-6
    assert np.abs(vectors(model, "document") - ours).max() < 2e-6
    assert exact_difference(model, tmp_path / "m") < 5e-7
    layer = model.transformer.encoder.layer[1].attention.self.value
    by_hand = layer.base_layer.weight + layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    found = model.plain().tower("document").transformer.encoder.layer[1].attention.self.value.weight
    assert float((by_hand - found).abs().max()) < 5e-7


def exact_difference(model: ModularEncoder, folder: Path) -> float:
    """Largest difference in float64 between four forms' [CLS] states: ours and peft's, unmerged and merged."""
    from peft import PeftModel
    from transformers import AutoModel

    theirs = PeftModel.from_pretrained(AutoModel.from_pretrained(folder), folder / REM).double().eval()
    own = ModularEncoder.load(folder).double()
    features = own.pad(own.tokenize(TEXTS, "document"))
    with torch.no_grad():
        made = [
            own.transformer(**features),
            own.plain().tower("document").transformer(**features),
            theirs(**features),
            theirs.merge_and_unload().eval()(**features),
        ]
    found = [states.last_hidden_state[:, 0] for states in made]
    assert all(state.dtype == torch.float64 for state in found)
    return max(float((state - found[0]).abs().max()) for state in found)


@pytest.mark.parametrize(
    "family, shape",
    [("bert", "both"), ("bert", "lora"), ("bert", "pa"), ("roberta", "both"), ("distilbert", "both"), ("t5", "both")],
)
def test_the_plain_model_gives_the_modular_ones_vectors(tmp_path, family, shape):
    model = modular(tmp_path, family, shape)
    model.save(tmp_path / "plain")
    assert difference(model, model.plain()) < 1e-4
    loaded = BiEncoder.load(tmp_path / "plain")
    plain = loaded.tower("document").transformer
    assert not inserting.adapters(plain) and not list(inserting.lora_layers(plain))
    assert type(loaded.tower("document").transformer) is type(model.transformer)
    own = vectors(model, "document")
    assert np.abs(vectors(loaded, "document") - own).max() < 1e-4 * np.abs(own).max()
    again = ModularEncoder.of(tiny_model(tmp_path, family, pooling=model.contract.pooling), settings(shape))
    again.take(tmp_path / "plain" / REM)
    assert (vectors(again.eval(), "document") == own).all()


@pytest.mark.parametrize(
    "changes",
    [{"scale": 1.0}, {"bottleneck": 5}],
    ids=str,
)
def test_other_settings_fold_too(tmp_path, changes):
    model = modular(tmp_path, **changes)
    assert difference(model, model.plain()) < 1e-4


def test_a_small_sharpness_is_refused_by_the_check(tmp_path):
    model = modular(tmp_path, sharpness=1.0)
    told = "raise rem.sharpness; for the modular form set rem.fold: false"
    with pytest.raises(ModelError, match=f"differ from the modular one's by .*{told}, and fold: false on"):
        model.save(tmp_path / "plain")


def test_the_backbone_is_left_as_it_is(tmp_path):
    """After a step: every tensor of the DAM has its bits, every module learnt."""
    model = ModularEncoder.of(tiny_model(tmp_path), settings()).train()
    kept = {name: value.clone() for name, value in model._backbone().items()}
    assert {name for name, _ in trained_parameters(model)} == {
        name for name, _ in model.named_parameters() if ".lora_" in name or ".parallel." in name
    }
    optimizer = torch.optim.AdamW([weight for _, weight in trained_parameters(model)], lr=0.1)
    before = {name: weight.detach().clone() for name, weight in trained_parameters(model)}
    for _ in range(2):  # the second step reaches what stands before matrices that begin at zero
        optimizer.zero_grad()
        model.encode(model.pad(model.tokenize(TEXTS[1:], "document")), "document").square().sum().backward()
        optimizer.step()
    assert all(torch.equal(kept[name], value) for name, value in model._backbone().items())
    assert all(not torch.equal(before[name], weight) for name, weight in trained_parameters(model))
    assert set(kept) == set(tiny_model(tmp_path).tower("document").transformer.state_dict())


def test_pooling():
    states = torch.tensor([[[2.0, 4], [4, 8], [100, 100]]])
    assert POOLINGS["mean"](states, torch.tensor([[1, 1, 0]])).tolist() == [[3, 6]]


def test_the_modular_form_loads_and_says_what_it_is(tmp_path):
    model = modular(tmp_path, fold=False)
    model.save(tmp_path / "m")
    own = vectors(model, "document")
    again = ModularEncoder.load(tmp_path / "m")
    assert (vectors(again, "document") == own).all() and again.rem == model.rem
    encoder = load_encoder(tmp_path / "m", device="cpu")
    assert encoder.backend.startswith("openvino ")
    tokens = encoder.tokenize(TEXTS, max_tokens=40)
    found = encoder.encode_batch([tokens[row] for row in range(len(TEXTS))])
    assert np.abs(found - own).max() < 1e-5
    with pytest.raises(ModelError, match="is a modular form"):
        BiEncoder.load(tmp_path / "m")
    again.save(tmp_path / "n")
    for name in (
        "model.safetensors",
        "zerodr.json",
        "rem/rem.json",
        "rem/pa.safetensors",
        "rem/adapter_config.json",
        "rem/adapter_model.safetensors",
    ):
        assert (tmp_path / "m" / name).read_bytes() == (tmp_path / "n" / name).read_bytes()
    assert not list(tmp_path.glob("[mn]/**/*.bin"))
    assert json.loads((tmp_path / "m" / "zerodr.json").read_text())["modules"] == "rem"


def test_gated_blocks_have_no_plain_form_with_adapters(tmp_path):
    model = stirred(ModularEncoder.of(gated(tmp_path), settings(fold=False))).eval()
    fresh = vectors(gated(tmp_path), "document")
    model.save(tmp_path / "m")
    own = vectors(model, "document")
    assert not np.allclose(own, fresh, atol=1e-3)
    assert (vectors(ModularEncoder.load(tmp_path / "m"), "document") == own).all()
    told = "set rem.fold: false, and fold: false on the stage of kind assemble; or rem.shape: lora"
    with pytest.raises(ModelError, match=f"gated, a plain model can't hold a parallel adapter.*{told}"):
        folded("t5", model.transformer, model.rem)
    merged = stirred(ModularEncoder.of(gated(tmp_path), settings("lora"))).eval()
    assert difference(merged, merged.plain()) < 1e-5


@pytest.mark.parametrize("shape", ["lora", "pa", "both"])
def test_families_with_other_blocks_are_named(tmp_path, shape):
    """ModernBERT's projections and blocks are laid out otherwise: nothing is inserted, nothing is frozen."""
    from transformers import ModernBertConfig, ModernBertModel

    model = tiny_model(tmp_path)
    config = ModernBertConfig(
        vocab_size=400, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, pad_token_id=0
    )
    model.towers["shared"].transformer = ModernBertModel(config).eval()
    message = "rem: a model of family modernbert can't take a relevance module, which is known for bert, .*, t5"
    with pytest.raises(ConfigError, match=message):
        ModularEncoder.of(model, settings(shape))
    with pytest.raises(ConfigError, match=message):
        shape_of(model.towers["shared"].transformer)
    assert all(weight.requires_grad for weight in model.parameters())


def test_what_cant_take_modules_is_told(tmp_path):
    with pytest.raises(ModelError, match="has two towers"):
        ModularEncoder.of(tiny_model(tmp_path, towers="separate"), settings())
    with pytest.raises(ModelError, match="has a head"):
        ModularEncoder.of(tiny_model(tmp_path, head="ance"), settings())
    model = modular(tmp_path)
    model.save_rem(tmp_path / "rem")
    other = ModularEncoder.of(tiny_model(tmp_path), settings(bottleneck=4))
    with pytest.raises(ModelError, match=r"layer.0.down.bias is \(5,\), expected \(4,\)"):
        other.take(tmp_path / "rem")
    with pytest.raises(ModelError, match="holds no relevance module"):
        read_rem(tmp_path)
    model.transformer.config.hidden_act = "tanh"
    with pytest.raises(ModelError, match="activation tanh, which can't stand for an adapter's relu"):
        check_folding("x", model.transformer, settings())


@pytest.mark.parametrize(
    "values, message",
    [
        ({"shape": "lora", "bottleneck": 8}, "bottleneck is not for shape lora"),
        ({"shape": "pa", "rank": 8}, "rank is not for shape pa"),
        ({"shape": "full", "fold": False}, "fold is not for shape full"),
        ({"sharpness": 1000.0}, "power of two"),
    ],
)
def test_settings_that_nothing_reads_are_refused(values, message):
    with pytest.raises(ValidationError, match=message):
        RemSettings(**values)


def test_shapes_are_told(tmp_path):
    assert shape_of(tiny_model(tmp_path).tower("document").transformer) == {"family": "bert", "hidden": 32, "layers": 2}


def test_a_module_that_was_trained_next_to_another_is_not_assembled_without_it(tmp_path):
    copy_config(tmp_path)
    learns = {"negatives": {"source": "bm25-flat+bm25s"}, "objective": {"name": "info_nce", "negatives_per_query": 1}}
    again = learns | {"after": "rem", "rem": {"shape": "both"}}
    for name, stage, dam in (("bad", again, "target-dam"), ("inside", again, "rem"), ("apart", again, "target-dam")):
        stage = stage | ({"after": "dam"} if name == "apart" else {})
        chain = {"again": stage, "both": {"kind": "assemble", "dam": dam, "rem": "again"}}
        recipe = {"like": "ddr-contrast", "label": name, "description": "test", "settings": {"chain": chain}}
        (tmp_path / f"config/methods/{name}.yaml").write_text(yaml.safe_dump(recipe))
    made = lab_plan(tmp_path)
    files = made.inputs("assemble")
    for name, scope in (("inside", "shared"), ("apart", "scifact")):
        assert "/again/" in files(SimpleNamespace(model=name, scope=scope, stage="both"))["rem"]
    said = "bad@both: rem again: was trained next to the relevance module of rem, which target-dam lacks"
    with pytest.raises(ConfigError, match=said):
        files(SimpleNamespace(model="bad", scope="scifact", stage="both"))


@pytest.mark.parametrize("dam", ["rem", "again", "other/again"])
def test_a_module_that_the_domain_module_has_already_is_not_assembled_again(tmp_path, dam):
    """A domain module that was listed after the relevance module, without `after`, came from that one's model."""
    copy_config(tmp_path)
    words = {"kind": "pretrain", "scope": "target", "corpora": ["target"], "objective": {"name": "mlm"}}
    settings = {"chain": {"again": words | {"after": "rem"}, "both": {"kind": "assemble", "dam": dam, "rem": "rem"}}}
    recipe = {"like": "ddr-contrast", "label": "bad", "description": "test", "settings": settings}
    (tmp_path / "config/methods/bad.yaml").write_text(yaml.safe_dump(recipe))
    other = {"encoder": {"init": "bad/rem"}, "chain": {"again": words}}
    recipe = {"kind": "trained", "label": "other", "description": "test", "settings": other}
    (tmp_path / "config/methods/other.yaml").write_text(yaml.safe_dump(recipe))
    asked = SimpleNamespace(model="bad", scope="shared" if dam == "rem" else "scifact", stage="both")
    said = f"bad@both: rem rem: is in {dam} already, which comes from it, so that it would count twice"
    with pytest.raises(ConfigError, match=said):
        lab_plan(tmp_path).inputs("assemble")(asked)
