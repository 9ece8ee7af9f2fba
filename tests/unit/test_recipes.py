"""Recipes: scales and variants laid over settings, chains unfolded, mistakes told in one sentence."""

from __future__ import annotations

import pytest

from zerodr.config.layers import Start, overlay
from zerodr.config.load import load_bench
from zerodr.config.recipes import load_methods, unfold
from zerodr.config.training import Architecture, InitSettings
from zerodr.errors import ConfigError

SCALES = {"mini", "paper"}
DPR = """
kind: trained
label: DPR
description: made up
settings:
  encoder: {init: org/name, pooling: cls}
  chain:
    ep0:
      negatives: {source: bm25}
      objective: {name: pairwise_nll}
      training: {steps: 100, learning_rate: 1.0e-3}
scales:
  mini:
    remark: small
    settings: {chain: {ep0: {training: {steps: 10, save_steps: [5]}}}}
variants:
  slow: {settings: {chain: {ep0: {training: {learning_rate: 1.0e-4}}}}}
  long:
    label: Long
    remark: ""
    settings: {chain: {ep1: {like: ep0, repeat: 2, negatives: {source: previous}}}}
    scales: {mini: {settings: {chain: {ep1: {training: {steps: 7, save_steps: []}}}}}}
"""


@pytest.fixture
def recipes(tmp_path):
    (tmp_path / "dpr.yaml").write_text(DPR)
    return tmp_path


def test_scales_and_variants_lie_over_the_settings(recipes):
    mini, paper = (load_methods(recipes, scale, SCALES) for scale in ("mini", "paper"))
    assert paper["dpr"].settings.chain["ep0"].training.steps == 100 and paper["dpr"].remark == ""
    small = mini["dpr"].settings.chain["ep0"].training
    assert (small.steps, small.learning_rate, mini["dpr"].remark) == (10, 1e-3, "small")
    slow = mini["dpr+slow"].settings.chain["ep0"].training
    assert (slow.steps, slow.learning_rate) == (10, 1e-4)
    assert (mini["dpr+slow"].label, mini["dpr+long"].label) == ("DPR (slow)", "Long")
    assert (mini["dpr+slow"].remark, mini["dpr+long"].remark) == ("small", "")


def test_a_variant_lies_over_others(recipes):
    more = "  slow-long: {over: [long, slow], scales: {mini: {settings: {chain: {ep2: null}}}}}\n"
    (recipes / "dpr.yaml").write_text(DPR + more)
    mini, paper = (load_methods(recipes, scale, SCALES)["dpr+slow-long"] for scale in ("mini", "paper"))
    assert paper.label == "DPR (slow-long)" and list(paper.settings.chain) == ["ep0", "ep1", "ep2"]
    training = mini.settings.chain["ep1"].training
    assert (training.steps, training.learning_rate) == (7, 1e-4), "the scale's part of a variant comes with it"


@pytest.mark.parametrize("name", ["slow-long", "later", "lonk"])
def test_a_variant_lies_over_those_above_it_alone(recipes, name):
    (recipes / "dpr.yaml").write_text(f"{DPR}  slow-long: {{over: [{name}]}}\n  later: {{}}\n")
    with pytest.raises(ConfigError, match=f"variants.slow-long: over: variant '{name}': is not known"):
        load_methods(recipes, "mini", SCALES)


STARTS = {
    "small": Start(
        remark="starts small",
        encoder=InitSettings(init="package:tiny", revision=None, layers=2, pooling="mean", similarity="cosine"),
    )
}


@pytest.fixture
def started(recipes):
    """Recipes whose small scale starts from `small`, and one that starts from their model."""
    text = DPR.replace("    remark: small\n", "    start: small\n")
    (recipes / "dpr.yaml").write_text(text)
    (recipes / "next.yaml").write_text(
        DPR.replace("init: org/name", "init: dpr/ep0").replace("remark: small", "remark: short")
    )
    (recipes / "own.yaml").write_text(DPR.replace("  slow: {settings: {", "  slow: {start: small, settings: {"))
    return recipes


def test_a_start_replaces_the_initial_model_and_gives_its_remark(started):
    mini, paper = (load_methods(started, scale, SCALES, STARTS) for scale in ("mini", "paper"))
    encoder = mini["dpr"].settings.encoder
    assert (encoder.init, encoder.layers, encoder.pooling) == ("package:tiny", 2, "mean")
    assert (mini["dpr"].start, mini["dpr"].remark, mini["dpr@ep0"].remark) == ("small", "starts small", "starts small")
    assert (paper["dpr"].settings.encoder.init, paper["dpr"].start, paper["dpr"].remark) == ("org/name", "", "")
    assert paper["own+slow"].settings.encoder.init == "package:tiny" and paper["own+slow"].remark == "starts small"


def test_the_remark_of_a_start_reaches_recipes_that_start_from_its_model(started):
    mini, paper = (load_methods(started, scale, SCALES, STARTS) for scale in ("mini", "paper"))
    assert mini["next"].remark == "starts small; short" and paper["next"].remark == ""


def test_a_variant_with_another_initial_model_leaves_the_start(started):
    text = (started / "dpr.yaml").read_text()
    changed = text.replace("slow: {settings: {", "slow: {settings: {encoder: {init: org/other}, ")
    (started / "dpr.yaml").write_text(changed)
    slow = load_methods(started, "mini", SCALES, STARTS)["dpr+slow"]
    assert (slow.settings.encoder.init, slow.start, slow.remark) == ("org/other", "", "")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("start: small", "start: smal", r"dpr.yaml: scales.mini: start 'smal': is not known: did you mean small\?"),
        (
            "start: small\n    settings: {",
            "start: small\n    settings: {encoder: {init: org/name}, ",
            "dpr.yaml: scales.mini: start: gives the initial model, and so does init: leave one of them out",
        ),
        ("label: DPR", "label: DPR\nstart: small", "dpr.yaml: start: gives the initial model, and so does init"),
    ],
)
def test_mistakes_in_starts(started, old, new, told):
    text = (started / "dpr.yaml").read_text()
    assert old in text
    (started / "dpr.yaml").write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=told):
        load_methods(started, "mini", SCALES, STARTS)


def test_another_initial_model_takes_away_the_architecture_below(recipes):
    (recipes / "dpr.yaml").write_text(
        DPR.replace("{init: org/name, pooling: cls}", "{init: scratch, architecture: {layers: 2}}")
    )
    small = load_methods(recipes, "paper", SCALES)["dpr"].settings.encoder
    changed = (recipes / "dpr.yaml").read_text() + "  other: {settings: {encoder: {init: org/other}}}\n"
    (recipes / "dpr.yaml").write_text(changed)
    other = load_methods(recipes, "paper", SCALES)["dpr+other"].settings.encoder
    assert small.architecture.layers == 2 and other.init == "org/other" and other.architecture == Architecture()


def test_a_method_without_training_has_no_start(recipes):
    (recipes / "bm25.yaml").write_text("kind: lexical\nlabel: x\ndescription: x\nstart: small\n")
    with pytest.raises(ConfigError, match="bm25.yaml: start: is for methods that train a model: leave it out"):
        load_methods(recipes, "mini", SCALES, STARTS)


def test_like_and_repeat_unfold(recipes):
    chain = load_methods(recipes, "mini", SCALES)["dpr+long"].settings.chain
    assert list(chain) == ["ep0", "ep1", "ep2"]
    assert chain["ep1"] == chain["ep2"] and chain["ep1"].negatives.source == "previous"
    assert chain["ep1"].training.steps == 7 and chain["ep1"].training.learning_rate == 1e-3


def test_every_model_on_the_way_has_a_name(recipes):
    methods = load_methods(recipes, "mini", SCALES)
    assert {"dpr@init", "dpr@ep0", "dpr@ep0.5", "dpr+long@ep2"} <= set(methods)
    assert methods["dpr@ep0.5"].last == "ep0.5" and methods["dpr"].last == "ep0"
    assert methods["dpr@init"].label == "DPR @init"


def test_a_stage_set_to_null_is_left_out():
    assert unfold({"a": {"x": 1}, "b": None}, "w") == {"a": {"x": 1}}


def test_overlay_joins_mappings_and_replaces_the_rest():
    below = {"a": {"b": 1, "c": [1]}, "d": 2}
    assert overlay(below, {"a": {"c": [2]}, "d": {"e": 3}}) == {"a": {"b": 1, "c": [2]}, "d": {"e": 3}}
    assert below == {"a": {"b": 1, "c": [1]}, "d": 2}


@pytest.mark.parametrize(
    ("chain", "told"),
    [
        ({"ep0": {}, "ep1": {"like": "ep"}}, r"ep1: is like 'ep', which is no stage before it: did you mean ep0\?"),
        ({"warm": {"repeat": 2}}, "repeat: 2, expected a number from 1, on a stage whose name ends in a number"),
        ({"ep0": {"repeat": 0}}, "repeat: 0, expected a number from 1"),
        ({"ep1": {"repeat": 2}, "ep2": {}}, "ep2: gives stage ep2 a second time"),
        ({"ep0": 3}, "expected a mapping, found int"),
        ({"ep0": {}, "ep1": {"like": ["ep0"]}}, r"is like \['ep0'\], which is no stage before it"),
        ({"ep0": {"kind": "pretrian"}}, r"ep0: kind 'pretrian': is not known: did you mean pretrain"),
        (
            {"ep0": {"kind": "adapt"}},
            "'adapt': is not known: known: answers, assemble, finetune, moma, pretrain",
        ),
        ({1: {}}, "settings.chain: key 1 is no text"),
        ({True: {}}, "key True is no text .YAML reads on, off"),
    ],
)
def test_chains_that_cannot_be_unfolded(chain, told):
    with pytest.raises(ConfigError, match=told):
        unfold(chain, "dpr.yaml")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("  mini:\n    remark", "  mimi:\n    remark", r"scales 'mimi': is not known: did you mean mini\?"),
        ("steps: 100", "step: 100", r"unknown key 'settings.chain.ep0.training.step': did you mean steps"),
        ("init: org/name", "inti: org/name", "settings.encoder.in"),
        (
            "encoder: {init: org/name, pooling: cls}",
            "encoder:",
            r"key 'settings.encoder': input should be a .* found None: correct",
        ),
        (
            "name: pairwise_nll",
            "name: margin_mse",
            r"key 'settings.chain.ep0': objective margin_mse follows a teacher's scores: name a `teacher`: corr",
        ),
        (
            "name: pairwise_nll",
            "name: infonce",
            "objective.name': 'infonce' is no loss, did you mean info_nce",
        ),
        ("pairwise_nll}", "pairwise_nll, kappa: 1}", "unknown key 'settings.chain.ep0.objective.kappa'"),
        ("1.0e-3", "few", r"key 'settings.chain.ep0.training.learning_rate': expected a number, found 'few'"),
        ("objective: {name: pairwise_nll}", "kind: finetune", "key 'settings.chain.ep0.objective' is missing: add it"),
        ("source: bm25}", "source: none}", "negatives_per_query needs negatives, but negatives.source is none"),
        ("pairwise_nll}", "pairwise_nll, negatives_per_query: 0}", "pairwise_nll compares a positive with hard neg"),
        ("pairwise_nll}", "info_nce, negatives_per_query: 0}", "uses no mined negatives: set negatives.source: none"),
    ],
)
def test_mistakes_in_recipes(recipes, old, new, told):
    assert old in DPR
    (recipes / "dpr.yaml").write_text(DPR.replace(old, new))
    with pytest.raises(ConfigError, match=told):
        load_methods(recipes, "mini", SCALES)


@pytest.mark.parametrize(
    ("objective", "told"),
    [
        ("pairwise_nll, inverse_temperature: 20", "inverse_temperature is not for pairwise_nll, which reads negatives"),
        ("info_nce, teacher_temperature: 3", "teacher_temperature is not for info_nce, which reads in_batch, inv"),
        ("pairwise_nll, in_batch: false", "in_batch is not for pairwise_nll.*or write true over a scale's"),
        ("pairwise_nll, teacher_temperature: 2", "not for pairwise_nll, which reads negatives_per_query:"),
        ("kl, in_batch: false", "in_batch is not for kl"),
        ("kl, student_temperature: 2", "unknown key 'settings.chain.ep0.objective.student_temperature'"),
        ("adist", r"key 'settings.chain.ep0.objective.name': 'adist' is no loss"),
    ],
)
def test_options_that_a_loss_does_not_read_are_refused(recipes, objective, told):
    (recipes / "dpr.yaml").write_text(DPR.replace("name: pairwise_nll", f"name: {objective}"))
    with pytest.raises(ConfigError, match=told):
        load_methods(recipes, "mini", SCALES)


def test_options_of_another_loss_may_stand_at_their_defaults(recipes):
    rest = "pairwise_nll, inverse_temperature: 1.0, in_batch: true, teacher_temperature: 1"
    (recipes / "dpr.yaml").write_text(DPR.replace("name: pairwise_nll", f"name: {rest}"))
    assert load_methods(recipes, "mini", SCALES)["dpr"].settings.chain["ep0"].objective.name == "pairwise_nll"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("skip: 0", "skip: 190", "negatives.count 20 is more than the 10 ranks that depth and skip leave"),
        ("skip: 0", "depth: 10", "negatives.count 20 is more than the 10 ranks"),
        ("skip: 0", "count: 1", "negatives_per_query 2 is more than negatives.count 1, the negatives that are kept"),
        (
            "steps: 10,",
            "steps: few,",
            r"dpr.yaml at scale mini: key 'settings.chain.ep0.training.steps': .*found 'few'",
        ),
        ("steps: 7,", "stepz: 7,", "variants.long at scale mini: unknown key 'settings.chain.ep1.training.stepz'"),
    ],
)
@pytest.mark.parametrize("scale", sorted(SCALES))
def test_mistakes_are_told_whatever_the_scale(recipes, scale, old, new, told):
    text = DPR.replace("{source: bm25}", "{source: bm25, skip: 0}").replace("nll}", "nll, negatives_per_query: 2}")
    (recipes / "dpr.yaml").write_text(text)
    load_methods(recipes, scale, SCALES)
    assert old in text
    (recipes / "dpr.yaml").write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=told):
        load_methods(recipes, scale, SCALES)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("mine.yml", r"config/methods/mine.yml: is no recipe.*: rename it to mine.yaml"),
        ("dpr+mine.yaml", r"config/methods/dpr\+mine.yaml: \+ is for variants"),
        ("dpr@mine.yaml", "dpr@mine.yaml: .* and @ for stages"),
    ],
)
def test_files_that_cannot_be_recipes_are_refused(recipes, name, told):
    (recipes / name).write_text(DPR)
    with pytest.raises(ConfigError, match=told):
        load_methods(recipes, "mini", SCALES)


def test_hidden_files_of_editors_and_systems_are_no_recipes(recipes):
    before = load_methods(recipes, "mini", SCALES).keys()
    (recipes / ".#dpr.yaml").symlink_to("user@host.1234:5678")  # Emacs, while dpr.yaml has unsaved changes
    (recipes / "._dpr.yaml").write_bytes(b"\0\5\x16\7\0\2\0\0Mac OS X\xb0")
    assert load_methods(recipes, "mini", SCALES).keys() == before


def test_what_a_teacher_was_tuned_on_is_told(root):
    lab, mini = (load_bench(root, {"scale": scale}).methods for scale in ("lab", "mini"))
    for name in ("kd", "berm-kd+kl", "ddr-distill", "dr-distill@ep0", "berm-dpr", "berm-ance", "coco-berm+no-r1"):
        assert "learns from" in lab[name].remark and "not a zero-shot result" in lab[name].remark, name
    assert not [name for name in ("dpr", "ance", "berm-dpr+plain", "coco-dr") if "zero-shot" in lab[name].remark]
    assert "learns from" not in mini["kd"].remark


def test_bm25_without_lucene_is_described_without_it(root):
    methods = load_bench(root, {"scale": "lab"}).methods
    described = [m.description for m in methods.values() if m.kind == "lexical" and m.settings.backend == "bm25s"]
    assert described and not any("Lucene" in text for text in described)
