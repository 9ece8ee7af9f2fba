"""Changed settings by words, recipes like others, and the user's own folder."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.unit.config_helpers import ROOT, copy_config

from zerodr.config.load import load_bench, read_config
from zerodr.config.provenance import render_difference
from zerodr.config.words import parse_words
from zerodr.errors import ConfigError
from zerodr.plan import Plan, reporting
from zerodr.plan.lines import Link

RATES = "dpr.training.learning_rate=1e-5,3e-5"


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.delenv("ZERODR_MY")
    (copy_config(tmp_path) / "config/my").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(project, name, text):
    (project / "config/my" / name).write_text(text)


def finetune(bench, model):
    return json.loads(Plan(bench).settings("finetune")(SimpleNamespace(model=model, stage="ep0", scope="shared")))


def test_values_are_rows_next_to_their_method_and_change_nothing_else(root):
    bench = load_bench(root, parse_words([f"set=[{RATES}]"]))
    names = ("dpr+training.learning_rate-1e-5", "dpr+training.learning_rate-3e-5")
    assert bench.rows[bench.rows.index("dpr") :][:3] == ("dpr", *names)
    plain, *changed = (finetune(bench, name)["settings"] for name in ("dpr", *names))
    assert [one["settings"]["training"].pop("learning_rate") for one in changed] == [1e-5, 3e-5]
    plain["settings"]["training"].pop("learning_rate")
    assert changed[0]["settings"] == changed[1]["settings"] == plain["settings"]
    assert finetune(bench, "dpr") == finetune(load_bench(root, {}), "dpr")
    assert reporting.row(Plan(bench), names[0])["family"] == bench.scale.families["dpr"]


def test_settings_of_one_method_are_combined_and_of_several_are_apart(root):
    bench = load_bench(root, {"set": [RATES, "dpr.ep0.training.batch_queries=8", "bm25-flat+bm25s.k1=1.5"]})
    assert [name.count("batch_queries") for name in bench.overridden["dpr"]] == [1, 1]
    method = bench.methods[bench.overridden["bm25-flat+bm25s"][0]]
    assert (method.settings.k1, method.settings.backend) == (1.5, "bm25s")


def test_a_key_without_a_stage_is_that_of_all_stages_that_have_it(root):
    bench = load_bench(root, {"scale": "lab", "set": ["ance.training.steps=700"]})
    (name,) = bench.overridden["ance"]
    chain = bench.methods[name].settings.chain
    assert {stage.training.steps for stage in chain.values()} == {700}


def test_a_value_is_that_of_every_target_unless_one_is_named(root):
    """DDR's recipe has values for targets with long documents, which stayed as they were without a word."""
    words = ["ddr-contrast.target-dam.training.steps=500", "ddr-contrast.training.batch_queries=64"]
    words += ["ddr-contrast.target-dam.by_target.nfcorpus.batch_queries=32"]
    chosen = {"scale": "paper", "collections": ["beir18", "lotte"], "methods": ["ddr-contrast"], "set": words}
    bench = load_bench(root, chosen)
    (name,) = bench.overridden["ddr-contrast"]
    targets = ("quora", "scifact", "lotte-writing-forum", "nfcorpus")
    stages = [Plan(bench).chains.pretraining(Link(name, "target-dam", target)) for target in targets]
    sizes = [(stage.training.steps, stage.training.batch_queries, stage.objective.max_tokens) for stage in stages]
    assert sizes == [(500, 64, 100), (500, 64, 190), (500, 64, 190), (500, 32, 190)]


def test_a_changed_variant_and_its_changed_recipe_have_names_of_their_own(root):
    words = ["dpr.training.steps=100", "dpr+official.training.steps=100"]
    bench = load_bench(root, {"set": words, "methods": ["dpr", "dpr+official"], "seeds": "14"})
    assert bench.overridden["dpr"] == ("dpr+training.steps-100",)
    assert bench.overridden["dpr+official"] == ("dpr+official_training.steps-100",)
    assert "dpr-seed14+official_training.steps-100" in bench.rows


def test_other_seeds_are_changed_too(root):
    bench = load_bench(root, {"set": RATES, "seeds": "14", "methods": ["dpr"]})
    assert bench.rows[2:4] == ("dpr+training.learning_rate-1e-5", "dpr-seed14+training.learning_rate-1e-5")
    assert finetune(bench, bench.rows[3])["seed"] == 14


def test_keys_of_a_mapping_on_the_command_line_lie_over_those_of_a_file(project):
    """Snakemake joins them: `zerodr explain` with the words of the run called its artifacts out of date."""
    write(project, "config.yaml", "byo_cut: {words: 60}\n")
    assert read_config(Path("config"), parse_words(["byo_cut={overlap: 5}"]))["byo_cut"] == {"words": 60, "overlap": 5}


@pytest.mark.parametrize(
    "word, message",
    [
        ("dpr.trainin.steps=1", "dpr has no setting 'trainin.steps': did you mean training.steps"),
        ("ance.ep3.training.steps=1", "ep3 repeats ep2, with the same settings: name ep2"),
        ("drp.training.steps=1", "'drp' is no method: did you mean dpr"),
        ("dpr.training.steps", "gives no value: write RECIPE.KEY=VALUE"),
        (
            "dpr.training.steps=many",
            "ConfigError: set dpr.training.steps=many: "
            "key 'settings.chain.ep0.training.steps': expected a whole number, found 'many'",
        ),
        ("dpr.training.steps=[", "its value is no YAML"),
        ("all-minilm-l6-v2.query_prefix='a: ','a:'", "query_prefix 'a: ' and query_prefix 'a:' have one name"),
    ],
)
def test_a_mistake_is_a_sentence(root, word, message):
    with pytest.raises(ConfigError, match=message.replace("[", r"\[")):
        load_bench(root, {"scale": "paper", "set": [word]})


def test_a_key_of_a_recipe_is_no_key_of_the_configuration():
    with pytest.raises(ConfigError, match=r"has no training.steps: change a recipe's with --set dpr.training.steps=3"):
        parse_words(["training.steps=3"])


def test_a_recipe_like_another_wins_over_the_others_scales(project):
    write(project, "mine.yaml", "like: dpr\nsettings: {chain: {ep0: {training: {batch_queries: 8}}}}\n")
    write(project, "next.yaml", "like: mine\nlabel: Next\nscales: {lab: {settings: {source_split: dev}}}\n")
    for scale in ("mini", "lab", "paper"):
        bench = load_bench(project, {"scale": scale})
        assert finetune(bench, "mine")["settings"]["settings"]["training"]["batch_queries"] == 8
        assert bench.methods["next"].settings.source_split == ("train" if scale == "paper" else "dev")
        assert bench.methods["next"].label == "Next" and "next+official" not in bench.methods
    lines = render_difference("dpr", bench, bench, project, "mine").splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["chain.ep0.training.batch_queries", "128", "recipe", "8", "recipe"]
    ]


@pytest.mark.parametrize("scale", ["mini", "lab", "paper"])
@pytest.mark.parametrize("recipe", ["dpr", "ance", "coco-dr", "ddr-contrast", "berm-dpr", "modir-dpr"])
def test_another_backbone_is_one_line(project, recipe, scale):
    write(project, "mine.yaml", f"like: {recipe}\nsettings: {{encoder: {{init: answerdotai/ModernBERT-base}}}}\n")
    encoder = load_bench(project, {"scale": scale}).methods["mine"].settings.encoder
    assert (encoder.init, encoder.revision) == ("answerdotai/ModernBERT-base", None)


def test_coco_without_a_head_is_what_the_page_says(project):
    """The page named one of two keys; the recipe's `head: if_present` was refused without saying what to write."""
    row = next(line for line in (ROOT / "docs/change.md").read_text().splitlines() if line.startswith("| `coco-dr` |"))
    keys = row.split("takes `")[1].partition("`")[0]
    start = "like: coco-dr\nsettings: {encoder: {init: answerdotai/ModernBERT-base}, chain: {coco: {%s}}}\n"
    write(project, "mine.yaml", start % keys)
    assert load_bench(project, {"scale": "paper"}).methods["mine"].settings.chain["coco"].objective.head_layers == 0
    write(project, "mine.yaml", start % "objective: {head_layers: 0}")
    with pytest.raises(ConfigError, match="head: if_present needs head_layers .* or write head: init over a recipe's"):
        load_bench(project, {"scale": "paper"})


def test_own_collections_and_settings_are_read_and_the_rest_is_refused(project):
    block = "{label: Notes, kind: complete, archive: notes.zip, splits: {test: 2}, evaluation_split: test}"
    write(project, "notes.yaml", f"collections:\n  notes: {block}\n")
    write(project, "config.yaml", "methods: [bm25-flat]\nset: [bm25-flat.k1=1.5,2]\n")
    bench = load_bench(project, read_config(project / "config"))
    assert bench.collections["notes"].label == "Notes" and bench.rows[0] == "bm25-flat"
    assert bench.rows[1:] == ("bm25-flat+k1-1.5", "bm25-flat+k1-2"), "YAML reads 2 as an item of its own"
    write(project, "claims.yaml", "items: {mine: {kind: claim, title: x, methods: [ance], baseline: dpr}}\n")
    assert load_bench(project, {}).papers["lab"].items["mine"].methods == ("ance",)
    for name in ("all", "main.published"):
        write(project, "claims.yaml", f"items: {{{name}: {{kind: claim, title: x, methods: [ance], baseline: dpr}}}}\n")
        with pytest.raises(ConfigError, match=f"an item can't be '{name}'"):
            load_bench(project, {})
    write(project, "claims.yaml", "items: {}\n")
    write(project, "other.yaml", "label: what\n")
    with pytest.raises(ConfigError, match="other.yaml: is no recipe, no list of collections or items"):
        load_bench(project, {})


@pytest.mark.parametrize("text", ["like: mine\n", "like: drp\n"])
def test_a_recipe_is_like_one_that_exists(project, text):
    write(project, "mine.yaml", text)
    with pytest.raises(ConfigError, match="is like mine, which is like it|did you mean dpr"):
        load_bench(project, {})


def test_a_recipe_has_one_file(project):
    write(project, "dpr.yaml", "like: ance\n")
    with pytest.raises(ConfigError, match="config/methods/dpr.yaml is a recipe of that name, too"):
        load_bench(project, {})


def test_a_folder_of_ones_own_that_is_absent_is_refused(project, monkeypatch):
    monkeypatch.setenv("ZERODR_MY", "group/mine")
    with pytest.raises(ConfigError, match="ZERODR_MY: group/mine is no folder"):
        load_bench(project, {})
