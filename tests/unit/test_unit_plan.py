"""BERM in the plan: who makes units and labels, what is shared, what reaches the stages, what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.unit.config_helpers import add_variants, lab_plan, params, root

from zerodr.config.recipes import INIT
from zerodr.errors import ConfigError
from zerodr.papers.berm.items import UnitsItem
from zerodr.papers.berm.plan import cut_units, labelled_units, units_read
from zerodr.plan import paths
from zerodr.plan.items import read_item
from zerodr.plan.lines import Link

__all__ = ["root"]
UNSET = {"head_layers": 2, "similarity": None, "inverse_temperature": None}  # what `lab` changes


def of(model: str, stage: str = "ep0", **more: str) -> SimpleNamespace:
    return SimpleNamespace(**{"model": model, "stage": stage, "scope": "shared"} | more)


def test_finetuning_reads_units_and_labels(root):
    made = lab_plan(root)
    inputs = made.inputs("finetune")(of("berm-dpr"))
    assert inputs["units"] == "results/units/berm-dpr/shared/ep0/cut/manifest.json"
    assert inputs["labels"] == "results/units/berm-dpr/shared/ep0/labels/manifest.json"
    told = params(made, "finetune", model="berm-dpr", stage="ep0")["settings"]["settings"]
    assert told["berm"]["preset"] == "paper"
    assert "units" not in made.inputs("finetune")(of("berm-dpr+plain"))
    assert "berm" not in params(made, "finetune", model="dpr", stage="ep0")["settings"]["settings"]


def test_pretraining_is_told_of_r1_only_where_it_has_it(root):
    made = lab_plan(root)
    told = params(made, "pretrain", model="coco-dr+r1", stage="coco")["settings"]["settings"]["balance"]
    assert (told["w_r1"], told["similarity"], told["cut"]["segmenter"]) == (1.0, "cosine", "rule")
    for model in ("coco-dr", "coco-dr+long-spans"):
        assert "balance" not in params(made, "pretrain", model=model, stage="coco")["settings"]["settings"]
    chains = made.chains
    assert chains.parent(Link("coco-berm+balanced-coco", "ep0")) == Link("coco-dr+r1", "coco")
    assert chains.parent(Link("coco-berm", "ep0")) == Link("coco-dr", "coco")
    assert chains.cut(Link("coco-dr+r1", "coco")) == Link("coco-dr+long-spans", "coco")


def test_each_seed_is_measured_over_the_pairs_that_it_drew(root):
    made = lab_plan(root, seeds=(14,))
    own, whole = ("berm-dpr+bm25-labels", "berm-dpr+gate-unseen")  # pairs of 20,000 drawn questions, of all questions
    for units_of, of_seed in ((own, "berm-dpr-seed14+bm25-labels"), (whole, whole)):
        item = UnitsItem(kind="units", title="x", units_of=units_of, methods=("berm-dpr",), measures=("unit_norm",))
        measures = read_item(made, item, []).files["measures"]
        assert measures == [paths.unit_measures(units_of, "berm-dpr"), paths.unit_measures(of_seed, "berm-dpr-seed14")]


@pytest.mark.parametrize("objective", ["condenser", "simcse", "tsdae", "ict"])
def test_r1_is_refused_beside_other_objectives(root, objective):
    stage = {"objective": {"name": objective, **UNSET}, "balance": {}, "training": {"dropout": None}}
    add_variants(root, "coco-dr", odd={"settings": {"chain": {"coco": stage}}})
    with pytest.raises(ConfigError, match=f"balance joins the objectives coco and mlm, found {objective}"):
        lab_plan(root)


def test_variants_share_what_they_do_not_change(root):
    made, first = lab_plan(root), Link("berm-dpr", "ep0")
    for variant in ("no-r1", "no-r2", "swapped", "r2-1"):
        link = Link(f"berm-dpr+{variant}", "ep0")
        assert [find(made, link) for find in (cut_units, labelled_units, units_read)] == [first] * 3
        assert made.chains.link(link.method) == link
    bm25, fixed = Link("berm-dpr+bm25-labels", "ep0"), Link("berm-dpr+fixed", "ep0")
    assert (cut_units(made, bm25), labelled_units(made, bm25)) == (first, bm25)
    assert (cut_units(made, fixed), units_read(made, fixed)) == (fixed, fixed)


def test_episodes_share_labels_of_all_queries_and_none_of_samples(root):
    sampled, whole = lab_plan(root, scale="mini"), lab_plan(root, scale="paper")
    assert cut_units(sampled, Link("berm-ance", "ep2")) == Link("berm-ance", "ep1")
    assert labelled_units(sampled, Link("berm-ance", "ep2")) == Link("berm-ance", "ep2")
    first, last = Link("berm-ance", "ep1"), Link("berm-ance", "ep7")
    assert labelled_units(whole, last) == units_read(whole, last) == first


def test_labels_wait_for_a_reader_only_where_there_is_one(root):
    made = lab_plan(root)
    assert set(made.inputs("label_units")(of("berm-dpr"))) == {"source", "units", "index", "mined", "read"}
    assert set(made.inputs("label_units")(of("berm-dpr+bm25-labels"))) == {"source", "units", "index", "mined"}
    assert "mined" not in lab_plan(root, scale="paper").inputs("label_units")(of("berm-dpr"))
    assert made.inputs("read_units")(of("berm-dpr"))["reader"] == "results/models/reader/shared/squad/manifest.json"
    assert made.inputs("segment_units")(of("berm-dpr"))["model"] == made.chains.model(
        made.chains.link(f"berm-dpr@{INIT}")
    )


def test_any_model_is_measured_over_the_units_of_another(root):
    made = lab_plan(root, scale="mini")
    inputs = made.inputs("measure_units")(SimpleNamespace(units_of="berm-ance", model="berm-dpr+plain"))
    assert inputs["model"] == "results/models/berm-dpr+plain/shared/ep0/manifest.json"
    assert inputs["labels"] == "results/units/berm-ance/shared/ep2/labels/manifest.json"


def test_units_of_documents_of_another_length_are_refused_in_the_plan(root):
    with pytest.raises(
        ConfigError, match="units of berm-dpr: are cut for documents of 128 tokens, berm-ance reads 256"
    ):
        lab_plan(root, scale="paper").inputs("measure_units")(SimpleNamespace(units_of="berm-dpr", model="berm-ance"))


@pytest.mark.parametrize(
    "stage, said",
    [
        ({"units": None}, "give units and berm, or none"),
        ({"units": {"reader": "cross-encoder"}}, "is a cross_encoder, expected a reader"),
        ({"units": {"reader": "raeder"}}, "did you mean reader"),
        ({"berm": {"w_r1": 0.0, "w_r2": 0.0}}, "both 0"),
        ({"scope": "target", "generate": {"count": 10}}, "units are of the source's judged documents"),
        ({"units": {"cut": {"segmenter": "nltk"}}}, "segmenter"),
    ],
    ids=str,
)
def test_what_can_not_be_meant_is_refused(root, stage, said):
    add_variants(root, "berm-dpr", odd={"settings": {"chain": {"ep0": stage}}})
    with pytest.raises(ConfigError, match=said):
        lab_plan(root)


def test_a_reader_is_no_row_of_the_table(root):
    with pytest.raises(ConfigError, match="is a reader, which reads pairs of texts and ranks no collection"):
        lab_plan(root, methods=("reader", "bm25-flat"))


@pytest.mark.parametrize("scale", ["mini", "lab", "paper"])
def test_every_recipe_can_be_planned(root, scale):
    made = lab_plan(root, scale=scale)
    names = [name for name in made.chains.names() if name.startswith(("berm", "coco-berm"))]
    assert len(names) > 20
    for name in names:
        link = made.chains.link(name)
        assert made.inputs("finetune")(of(link.method, link.stage)) and params(
            made, "finetune", model=link.method, stage=link.stage
        )
