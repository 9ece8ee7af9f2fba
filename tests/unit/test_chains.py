"""Chains: which stage makes which model, what is shared, what is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from tests.unit.config_helpers import add_variants, inputs, lab_plan, params, root

from zerodr.errors import ConfigError
from zerodr.plan.chains import Link

__all__ = ["root"]

ROOT = Path(__file__).parents[2]


def test_one_name_for_one_model(root):
    chains = lab_plan(root).chains
    assert chains.link("dpr") == chains.link("dpr@ep0") == chains.link("ance@init") == Link("dpr", "ep0")
    assert chains.link("ance").name == "ance@ep2" and chains.link("dpr@ep0.200").name == "dpr@ep0.200"
    assert chains.parent(Link("ance", "ep1")) == Link("dpr", "ep0")
    assert chains.parent(Link("ance", "ep2")) == Link("ance", "ep1")


def test_a_variant_shares_the_stages_that_it_does_not_change(root):
    add_variants(root, "ance", late={"settings": {"chain": {"ep2": {"repeat": 2}}}})
    chains = lab_plan(root).chains
    assert chains.link("ance+late@ep1") == Link("ance", "ep1") and chains.link("ance+late@ep2") == Link("ance", "ep2")
    assert chains.link("ance+late") == Link("ance+late", "ep3")
    assert chains.link("ance+bm25@ep1") == Link("ance+bm25", "ep1")
    assert chains.link("dpr+official@init") == Link("dpr+official", "init")


def test_adding_an_episode_leaves_the_earlier_jobs_as_they_are(root):
    before = lab_plan(root)
    jobs = [("finetune", {"model": "ance", "stage": "ep2"}), ("mine_negatives", {"model": "ance", "stage": "ep2"})]
    old = [params(before, rule, **wildcards) for rule, wildcards in jobs]
    path = root / "config/methods/ance.yaml"
    path.write_text(path.read_text().replace("repeat: 1}", "repeat: 2}"))
    after = lab_plan(root)
    assert [params(after, rule, **wildcards) for rule, wildcards in jobs] == old
    assert after.chains.link("ance") == Link("ance", "ep3")


def test_a_linear_schedule_ends_with_the_chain(root):
    linear = {"training": {"schedule": "linear", "schedule_steps": None}}
    add_variants(root, "ance", linear={"settings": {"chain": {"ep1": linear}}})
    made = lab_plan(root)
    jobs = (params(made, "finetune", model="ance+linear", stage=stage) for stage in ("ep1", "ep2"))
    one, two = (job["settings"]["schedule"] for job in jobs)
    assert (one["first_step"], one["total_steps"], two["first_step"], two["total_steps"]) == (0, 400, 200, 400)
    flat = params(made, "finetune", model="ance", stage="ep1")["settings"]["schedule"]
    assert (flat["first_step"], flat["total_steps"]) == (0, 200)


def test_moments_are_kept_for_a_stage_that_continues_with_them(root):
    add_variants(root, "ance", anew={"settings": {"chain": {"ep2": {"training": {"keep_optimizer": False}}}}})
    made = lab_plan(root)
    for name, expected in (("ance", [True, True]), ("ance+anew", [False, False])):
        saved = [params(made, "finetune", model=name, stage=s)["settings"]["save_optimizer"] for s in ("ep1", "ep2")]
        assert saved == expected


def test_negatives_come_from_the_parent_or_from_a_named_method(root):
    made = lab_plan(root)
    ance = made.inputs("mine_negatives")(SimpleNamespace(scope="shared", model="ance", stage="ep2"))
    sample = "train.sample20000-stage1-dev500-seed13"
    assert ance["candidates"] == f"results/candidates/ance@ep1/shared/squad-v1.1/{sample}.top200.parquet"
    assert ance["previous"] == "results/mined/ance/shared/ep1/manifest.json"
    dpr = made.inputs("mine_negatives")(SimpleNamespace(scope="shared", model="dpr", stage="ep0"))
    assert "bm25-flat+bm25s" in dpr["candidates"] and "previous" not in dpr
    add_variants(
        root,
        "dpr",
        alone={
            "settings": {"chain": {"ep0": {"negatives": {"source": "none"}, "objective": {"negatives_per_query": 0}}}}
        },
    )
    assert set(
        lab_plan(root).inputs("mine_negatives")(SimpleNamespace(scope="shared", model="dpr+alone", stage="ep0"))
    ) == {"source"}


def test_variants_that_only_train_otherwise_share_mined_queries(root):
    add_variants(root, "dpr", fast={"settings": {"chain": {"ep0": {"training": {"learning_rate": 1e-4}}}}})
    made = lab_plan(root)
    inputs = made.inputs("finetune")(SimpleNamespace(scope="shared", model="dpr+fast", stage="ep0"))
    assert inputs["mined"] == "results/mined/dpr/shared/ep0/manifest.json"
    assert inputs["model"] == "results/models/dpr/shared/init/manifest.json"
    kl = made.inputs("finetune")(SimpleNamespace(scope="shared", model="kd+kl", stage="ep0"))
    assert kl["scored"] == "results/scored/kd/shared/ep0/manifest.json"


def test_what_another_recipe_says_of_its_encoder_holds(root):
    chains = lab_plan(root).chains
    ance, kd, dpr = (chains.encoder(name) for name in ("ance", "kd", "dpr"))
    assert ance == dpr.model_copy(update={"init": "dpr/ep0"})
    assert kd.similarity == "dot" and dpr.similarity == "cosine"
    assert kd.architecture == dpr.architecture and dpr.architecture.hidden == 256


def test_seeds_reach_the_init_only_where_it_is_random(root):
    made = lab_plan(root, seed=7)
    seeds = [params(made, "init_model", model=m)["seed"] for m in ("genq", "dpr+scratch", "dpr+official")]
    assert seeds == [0, 7, 7]


@pytest.mark.parametrize(
    ("change_of", "told"),
    [
        ({"encoder": {"init": "ance/ep9"}}, r"ance has no stage 'ep9': did you mean ep"),
        ({"encoder": {"init": "ance/ep2"}}, "starts from itself"),
        ({"chain": {"ep0": {"negatives": {"source": "bm25-flat"}}}}, "which mining does not: name a lexical method"),
        (
            {"chain": {"ep0": {"negatives": {"source": "bm25-flta"}}}},
            "'bm25-flta': is not known: did you mean bm25-fla",
        ),
        ({"chain": {"ep0": {"negatives": {"source": "hybrid"}}}}, "'bm25-multifield': searches Lucene"),
        (
            {"chain": {"ep0": {"objective": {"name": "kl", "inverse_temperature": 1.0}, "teacher": "bm25-flat"}}},
            "is a method of kind lexical, expected a cross_encoder",
        ),
        ({"chain": {"ep0": {"training": {"keep_optimizer": True}}}}, "the initial model has no moments"),
        (
            {
                "chain": {
                    "ep0": {"training": {"save_steps": [200]}},
                    "late": {"like": "ep0", "after": "ep0.200", "training": {"keep_optimizer": True}},
                }
            },
            "stage late: can't keep_optimizer: ep0.200 has no moments",
        ),
        (
            {
                "chain": {
                    "words": {"kind": "pretrain", "objective": {"name": "mlm"}},
                    "late": {"like": "ep0", "training": {"keep_optimizer": True}},
                }
            },
            "stage late: can't keep_optimizer: words has no moments",
        ),
        (
            {"chain": {"late": {"like": "ep0", "training": {"keep_optimizer": True, "optimizer": "lamb"}}}},
            "can't keep_optimizer: ep0 is trained with adamw, this stage with lamb",
        ),
        (
            {"chain": {"late": {"like": "ep0", "training": {"keep_optimizer": True, "lora_rank": 4}}}},
            "can't keep_optimizer: weights of training.lora_rank begin anew with each stage",
        ),
        ({"chain": {"ep0": {"training": {"save_steps": [400]}}}}, r"holds 400.* between 1 and 399.*save_steps: \[\]"),
        (
            {
                "chain": {
                    "words": {
                        "kind": "pretrain",
                        "scope": "target",
                        "objective": {"name": "mlm"},
                        "by_target": {"scifcat": {"steps": 7}},
                    }
                }
            },
            "stage words: by_target 'scifcat': is not known: did you mean scifact",
        ),
        (
            {
                "chain": {
                    "words": {
                        "kind": "pretrain",
                        "scope": "target",
                        "objective": {"name": "mlm"},
                        "by_target": {"scifact": {"steps": 70}},
                        "training": {"steps": 200, "save_steps": [100]},
                    }
                }
            },
            r"holds 100, expected steps between 1 and 69 \(by_target.scifact.steps less 1\)",
        ),
        ({"chain": {"init": {"like": "ep0"}}}, "stage init: can't be a stage's name"),
        ({"source_split": "tran"}, r"no judgements for split 'tran', there is nothing to learn from: did you mean tra"),
    ],
)
def test_chains_that_are_refused(root, change_of, told):
    path = root / "config/methods/dpr.yaml"
    add_variants(root, "dpr", odd={"settings": change_of})
    if "starts from itself" in told:
        value = yaml.safe_load(path.read_text())
        del value["scales"]["lab"]["start"]
        value["scales"]["lab"]["settings"]["encoder"] = {"init": "ance/ep2"}
        path.write_text(yaml.safe_dump(value, sort_keys=False))
    with pytest.raises(ConfigError, match=told):
        lab_plan(root, methods=("dpr+odd", "bm25-flat"))


def test_a_teacher_is_no_row(root):
    with pytest.raises(ConfigError, match="is a cross_encoder, which reads pairs of texts and ranks no collection"):
        lab_plan(root, methods=("cross-encoder", "bm25-flat"))


def test_gated_corpora_are_left_out_of_pretraining_and_told(root):
    closed, opened = (
        params(
            lab_plan(root, scale="paper", collections=("scifact", "robust04"), **more),
            "pretrain",
            model="coco-dr",
            stage="coco",
        )
        for more in ({}, {"gated": ("robust04",)})
    )
    assert closed["settings"]["left_out"] == ["robust04"] and opened["settings"]["left_out"] == []
    link = Link("coco-dr", "coco")
    assert "robust04" not in lab_plan(root, scale="paper", collections=("scifact", "robust04")).chains.corpora(link)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (
            {"corpora": ["robust04"]},
            "no corpus to learn from: robust04 gated and not available: name others .* `gated`",
        ),
        ({"corpora": ["scifact"], "without": ["scifact"]}, "no corpus to learn from: `without` leaves out all of them"),
    ],
)
def test_a_pretraining_without_a_corpus_is_refused_when_planned(root, keys, told):
    """The job was planned, and ended with numpy's ValueError ('need at least one array to concatenate')."""
    add_variants(root, "coco-dr", odd={"settings": {"chain": {"coco": keys}}})
    made = lab_plan(root, scale="paper", collections=("scifact",))
    with pytest.raises(ConfigError, match=rf"coco-dr\+odd@coco: has {told}"):
        inputs(made, "pretrain", model="coco-dr+odd", stage="coco", scope="shared")


def test_coco_dr_lowers_its_rate_by_episode_as_the_released_schedule_does(root):
    """Peaks by the step at which an episode starts."""
    chain = lab_plan(root, scale="paper").chains.trained("coco-dr").chain
    episodes = [chain[stage].training for stage in ("ep1", "ep2", "ep3")]
    starts = [sum(training.steps for training in episodes[:place]) for place in range(3)]
    peaks = [5e-6 * max(0.2, 1 - start / 300_000) for start in starts]
    assert [training.learning_rate for training in episodes] == pytest.approx(peaks)


@pytest.mark.parametrize(
    ("init", "told"),
    [
        ("drp/ep0", r"init 'drp/ep0': no recipe 'drp' has such a stage: did you mean dpr/ep0"),
        ("drp/ep0.200", "did you mean dpr/ep0.200"),
        ("acne/ep2", "did you mean ance/ep2"),
        ("dpr", "init 'dpr': is a recipe, not a model: write dpr/ep0"),
        ("dpr@ep0", "recipe and stage are joined by /: write dpr/ep0"),
        ("dpr@ep9", "write dpr/ep0"),
        ("drp@ep0", "joined by /: did you mean dpr"),
        ("bm25-flat", "is a recipe that trains no model: give a folder"),
        ("./models/mine", "init './models/mine': is no folder: give one that is there"),
        ("../mine", "is no folder"),
        ("/models/mine", "is no folder"),
        ("~/mine", "is no folder"),
    ],
)
def test_starts_that_no_hub_can_mean_are_refused(root, init, told):
    add_variants(root, "ance", odd={"settings": {"encoder": {"init": init}}})
    with pytest.raises(ConfigError, match=told):
        lab_plan(root)


def test_hub_names_and_folders_that_are_there_start_a_recipe(root, tmp_path):
    (tmp_path / "mine").mkdir()
    for init in (
        str(tmp_path / "mine"),
        "bert-base-uncased",
        "google/dpr",
        "drp/model",
        "organisation/ep0",
    ):
        add_variants(root, "ance", odd={"settings": {"encoder": {"init": init}}})
        assert lab_plan(root).chains.parent_of(init) is None


def test_a_revision_says_that_a_name_is_of_the_hub(root):
    """`cross-encoder` is a recipe and an organisation."""
    init = "cross-encoder/model"
    add_variants(root, "ance", odd={"settings": {"encoder": {"init": init, "revision": "1234"}}})
    assert lab_plan(root).chains.parent_of(init) is None
    add_variants(root, "ance", odd={"settings": {"encoder": {"init": init}}})
    with pytest.raises(ConfigError, match="cross-encoder has no stage 'model'"):
        lab_plan(root)


def test_a_bi_encoder_does_not_start_from_what_ranks_nothing(root):
    add_variants(root, "dpr", odd={"settings": {"encoder": {"init": "cross-encoder/ep0"}}})
    with pytest.raises(ConfigError, match="is a model that ranks nothing"):
        lab_plan(root)


@pytest.mark.parametrize("teacher", ["cross-encoder", "cross-encoder/ep0"])
def test_a_teacher_is_a_recipe_or_one_of_its_stages(root, teacher):
    add_variants(root, "kd", odd={"settings": {"chain": {"ep0": {"teacher": teacher}}}})
    made, wc = lab_plan(root), SimpleNamespace(model="kd+odd", scope="shared", stage="ep0")
    assert made.inputs("score_pairs")(wc)["teacher"] == "results/models/cross-encoder/shared/ep0/manifest.json"
    published = lab_plan(root, scale="paper") if teacher == "cross-encoder" else None
    if published is not None:
        assert (
            published.inputs("score_pairs")(wc)["teacher"] == "results/models/cross-encoder/shared/init/manifest.json"
        )


def test_what_ranks_nothing_is_trained_by_the_rules_of_all_models(root):
    made = lab_plan(root)
    teacher = SimpleNamespace(model="cross-encoder", scope="shared", stage="ep0")
    reader = SimpleNamespace(model="reader", scope="shared", stage="squad")
    assert set(made.inputs("finetune")(teacher)) == {"model", "mined", "source"}
    assert set(made.inputs("finetune")(reader)) == {"model", "source"}
    assert params(made, "finetune", model="reader", stage="squad")["settings"]["encoder"] == "reader"
    assert "encoder" not in params(made, "finetune", model="dpr", stage="ep0")["settings"]
    for model in ("cross-encoder", "reader"):
        assert "type" in params(made, "init_model", model=model)["settings"]
    assert "type" not in params(made, "init_model", model="dpr")["settings"]


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        ("kind: encoder\nsettings: {model: /nope}", "method mine: model '/nope': is no folder"),
        ("kind: encoder\nsettings: {model: dpr/ep0}", "is a model of a recipe: it is a method already, dpr@ep0"),
        ("kind: encoder\nsettings: {model: dpr@ep0}", "name dpr@ep0 where methods are named"),
        (
            "kind: trained\nsettings: {encoder: {type: cross_encoder, init: ./nope}}",
            "method mine: init './nope': is no fol",
        ),
        ("kind: trained\nsettings: {encoder: {type: cross_encoder, init: drp/ep0}}", "did you mean dpr/ep0"),
        ("kind: trained\nsettings: {encoder: {type: reader, init: dpr/ep9}}", "dpr has no stage 'ep9'"),
        ("kind: trained\nsettings: {encoder: {type: raeder, init: dpr/ep0}}", "did you mean reader"),
    ],
)
def test_models_of_other_kinds_are_looked_at_too(root, recipe, told):
    (root / "config/methods/mine.yaml").write_text(f"label: x\ndescription: x\n{recipe}\n")
    with pytest.raises(ConfigError, match=told):
        lab_plan(root)


@pytest.mark.parametrize(
    ("encoder", "refused"),
    [
        ({"init": "scratch", "architecture": {"family": "t5"}, "pooling": "mean"}, True),
        ({"init": "google/t5", "pooling": "decoder_first"}, True),
        ({"init": "t5-ance/ep0"}, True),
        ({"init": "google/t5", "pooling": "mean"}, False),
        ({"init": "google/bert", "pooling": "cls"}, False),
        ({"init": "dpr/ep0"}, False),
    ],
)
def test_fp16_is_refused_for_what_is_known_to_be_a_t5(root, encoder, refused):
    chain = {
        "ep0": {
            "negatives": {"source": "none"},
            "objective": {"name": "info_nce", "negatives_per_query": 0},
            "training": {"precision": "fp16"},
        }
    }
    value = {"kind": "trained", "label": "Half", "description": "x", "settings": {"encoder": encoder, "chain": chain}}
    (root / "config/methods/half.yaml").write_text(yaml.safe_dump(value, sort_keys=False))
    if refused:
        with pytest.raises(ConfigError, match="method half: stage ep0: training.precision: fp16 is refused for T5"):
            lab_plan(root)
    else:
        assert lab_plan(root)
