"""Configuration: what is accepted, how mistakes are answered, canonical form."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerodr.config.base import canonical_json, validate
from zerodr.config.files import read_value, read_yaml
from zerodr.config.generation import GenerateSettings
from zerodr.config.index import IndexSettings
from zerodr.config.load import load_bench
from zerodr.config.methods import EncoderMethod, FusionSettings, LexicalSettings
from zerodr.config.params import FinetuneParams
from zerodr.config.settings import Config
from zerodr.config.training import TrainingSettings
from zerodr.errors import ConfigError
from zerodr.operations.cli import plan_of
from zerodr.papers.coco_dr.settings import GroupSettings


@pytest.fixture
def project(root, tmp_path):
    (tmp_path / "resources").symlink_to(root / "resources")
    shutil.copytree(root / "config", tmp_path / "config")
    return tmp_path


def test_the_shipped_configuration_loads_at_every_scale(root):
    for scale in ("mini", "lab", "paper"):
        bench = load_bench(root, {"scale": scale})
        assert bench.scale.collections and bench.config.scale == scale


def test_a_variant_changes_only_what_it_names(root):
    methods = load_bench(root, {}).methods
    base, variant = methods["all-minilm-l6-v2"].settings, methods["all-minilm-l6-v2+bf16"].settings
    assert variant == base.model_copy(update={"precision": "bf16"})


@pytest.mark.parametrize(
    ("value", "telling"),
    [
        ({"sede": 1}, "unknown key 'sede': did you mean seed"),
        ({"seed": "x"}, "key 'seed': expected a whole number, found 'x'"),
        ({"seeds": ["x"]}, "key 'seeds': expected a whole number, found 'x'"),
        ({"methods": []}, "key 'methods': expected at least one entry, found none: add one"),
        ({"seed": -1}, "found -1"),
        ({"seed": 202611281130}, "less than or equal to 2147483647, found 202611281130"),  # faiss counts 32 bits
        ({"seeds": [2**31]}, "found 2147483648"),
        ([], "expected a mapping of settings, found list"),
    ],
)
def test_mistakes_name_key_value_and_nearest_name(value, telling):
    with pytest.raises(ConfigError, match="config.yaml") as caught:
        validate(Config, value, "config/config.yaml")
    assert telling in str(caught.value)


def test_an_unknown_key_of_a_papers_settings_is_answered_without_the_kind_of_stage():
    stage = {"objective": {"name": "kl"}, "teacher": "x", "groups": {"kapa": 1}}
    params = {"settings": stage, "schedule": {"stage": "ep0", "stage_index": 0, "total_steps": 1}}
    with pytest.raises(ConfigError, match="unknown key 'settings.groups.kapa': did you mean kappa"):
        validate(FinetuneParams, params | {"source_split": "train"}, "finetune")


def test_a_nested_unknown_key_is_answered_from_the_nested_model():
    value = {"kind": "encoder", "label": "x", "description": "x", "settings": {"model": "m", "poolin": "cls"}}
    with pytest.raises(ConfigError) as caught:
        validate(EncoderMethod, value, "config/methods/x.yaml")
    assert "unknown key 'settings.poolin'" in str(caught.value) and "pooling" in str(caught.value)


def test_what_a_backend_does_not_offer_is_refused():
    with pytest.raises(ConfigError, match="bm25s offers"):
        validate(LexicalSettings, {"backend": "bm25s", "expansion": "rm3"}, "x")


def test_yaml_syntax_errors_name_the_line(project):
    (project / "config/methods/bad.yaml").write_text("kind: lexical\nlabel: [open\n")
    with pytest.raises(ConfigError, match="bad.yaml:"):
        load_bench(project, {})


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("config.yaml", "seed: 1\nscale: mini\nseed: 2\n", "config.yaml:3: key 'seed' occurs twice in one mapping"),
        ("methods/x.yaml", "kind: lexical\nsettings: {k1: 1,\n  k1: 2}\n", "x.yaml:3: key 'k1' occurs twice"),
        ("scales.yaml", "mini: {gpus: 1}\nmini: {}\n", "scales.yaml:2: key 'mini' occurs twice"),
    ],
)
def test_a_key_that_stands_twice_is_refused(project, name, text, told):
    (project / "config" / name).write_text(text)
    for overrides in (None, {"scale": "mini"}):
        with pytest.raises(ConfigError, match=told):
            load_bench(project, overrides)


def test_merged_keys_give_way_to_written_ones(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("a: &a {k: 1, l: 1}\nb: &b {<<: *a, k: 2}\nc: [{<<: *b, l: 3}, {<<: [*b, *a]}]\n")
    assert read_yaml(path) == {"a": {"k": 1, "l": 1}, "b": {"k": 2, "l": 1}, "c": [{"k": 2, "l": 3}, {"k": 2, "l": 1}]}


@pytest.mark.parametrize("name", ["methods/x.yaml", "collections/x.yaml", "config.yaml"])
def test_other_encodings_are_refused_with_the_line(project, name):
    (project / "config" / name).write_bytes("label: x\ndescription: für\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=f"{name}:2: is not in UTF-8: save the file in UTF-8"):
        load_bench(project)


@pytest.mark.parametrize("text", ["[a, b]", "mini", "3"])
def test_a_configuration_that_is_no_mapping_is_refused(project, monkeypatch, text):
    (project / "config/config.yaml").write_text(text)
    monkeypatch.chdir(project)
    for load in (lambda: load_bench(project), lambda: plan_of([])):
        with pytest.raises(ConfigError, match="config/config.yaml: expected a mapping, found"):
            load()


def test_a_fusion_of_a_fusion_is_refused(project):
    (project / "config/methods/twice.yaml").write_text(
        "kind: fusion\nlabel: x\ndescription: x\nsettings: {runs: [hybrid, bm25-flat]}\n"
    )
    with pytest.raises(ConfigError, match="has no ranking of its own"):
        load_bench(project, {})


def test_a_misspelt_run_of_a_fusion_names_the_nearest(project):
    recipe = "kind: fusion\nlabel: x\ndescription: x\nsettings: {runs: [bm25-flat, drp]}\n"
    (project / "config/methods/mixed.yaml").write_text(recipe)
    with pytest.raises(ConfigError, match=r"method mixed: run 'drp': is not known: did you mean dpr"):
        load_bench(project, {"methods": ["mixed"]})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("runs: [bm25-flat, bm25-flat]", "key 'settings': runs names bm25-flat twice: name two methods"),
        ("runs: [bm25-flat, dpr], weights: [0, 0]", "weights are not below 0 and not all 0, found .0.0, 0.0.: correct"),
        ("runs: [bm25-flat, dpr], weights: [1, -1]", "weights are not below 0"),
    ],
)
def test_fusions_that_mix_nothing_are_refused(project, settings, told):
    recipe = f"kind: fusion\nlabel: x\ndescription: x\nsettings: {{{settings}}}\n"
    (project / "config/methods/mixed.yaml").write_text(recipe)
    with pytest.raises(ConfigError, match=told):
        load_bench(project, {})


def test_a_baseline_that_ranks_nothing_is_refused(root):
    with pytest.raises(ConfigError, match="baseline 'cross-encoder': is a cross_encoder, which reads pairs"):
        load_bench(root, {"baseline": "cross-encoder"})


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.parquet", "notes.txt"])
def test_an_own_folder_without_documents_is_refused_when_read(project, tmp_path, name):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / name).write_text("")
    with pytest.raises(ConfigError, match="byo=.*/own: holds empty files alone: put documents there"):
        load_bench(project, {"byo": str(tmp_path / "own")})


def test_an_own_folder_becomes_a_collection(project, tmp_path):
    own = tmp_path / "My Notes"
    (own / "qrels").mkdir(parents=True)
    (own / "corpus.jsonl").write_text('{"_id": "1", "text": "a note"}\n')
    (own / "qrels/dev.tsv").write_text("")
    bench = load_bench(project, {"byo": str(own)})
    assert bench.collections["my-notes"].evaluation_split == "dev"
    (own / ".DS_Store").write_text("x")
    found = {
        part: [path.rsplit("/", 1)[1] for path in paths] for part, paths in bench.folders["my-notes"].files.items()
    }
    assert found == {"corpus": ["corpus.jsonl"], "judgements": ["dev.tsv"]}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("shared", "the name 'shared' has another meaning here: rename the folder"),
        ("Target", "the name 'target' has another meaning"),
        ("model", "the name 'model' has another meaning"),
        ("mini", "the name 'mini' has"),
        ("beir18", "the name 'beir18' has"),
        ("CQADupStack", "the name 'cqadupstack' has"),
        ("scifact", "already has a collection named 'scifact'"),
        (
            "a#b",
            "'a#b' can't be part of a path: rename the folder, or set byo_name or adapt's --name: "
            "at most 80 small letters",
        ),
        ("ünï", "can't be part of a path"),
        ("_x", "can't be part of a path"),
    ],
)
def test_own_folders_with_names_that_cannot_be_are_refused(project, tmp_path, name, told):
    (tmp_path / "own" / name).mkdir(parents=True)
    (tmp_path / "own" / name / "corpus.tsv").write_text("1\tx\n")
    with pytest.raises(ConfigError, match=f"byo=.*{told}"):
        load_bench(project, {"byo": str(tmp_path / "own" / name)})


def test_an_own_folder_without_a_corpus_is_refused(project, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/corpus.xlsx").write_text("x")
    told = r"holds no documents \(txt, md, html, pdf, .*\); not read: corpus.xlsx: convert one"
    with pytest.raises(ConfigError, match=told):
        load_bench(project, {"byo": str(tmp_path / "notes")})


def test_blanks_between_names_do_not_count(root):
    assert load_bench(root, {"methods": "bm25-flat, dpr"}).config.methods == ("bm25-flat", "dpr")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.dictionaries(st.text(), json_values))
def test_canonical_form_ignores_the_order_of_keys(value):
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


def test_canonical_form_keeps_numbers_as_they_are():
    assert canonical_json({"b": 1.0, "a": 1}) == '{"a":1,"b":1.0}'


@pytest.mark.parametrize(
    ("name", "text", "telling"),
    [
        ("methods/all.yaml", "kind: lexical\nlabel: x\ndescription: x\n", "can't be part of a path"),
        (
            "methods/x.yaml",
            "kind: lexical\nlabel: x\ndescription: x\nvariants: [a]\n",
            "expected a mapping, found list",
        ),
        ("scales.yaml", "- mini\n", "expected a mapping, found list"),
        ("protocols.yaml", "standard: {description: x}\na b/c: {description: x}\n", "can't be part of a path"),
    ],
)
def test_files_of_another_shape_are_refused_in_a_sentence(project, name, text, telling):
    (project / "config" / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_bench(project, {})
    assert telling in str(caught.value)


@pytest.mark.parametrize("gpus, nodes", [(8, 3), (2, 4), (1, 2)])
def test_gpus_that_nodes_cannot_share_are_refused(root, gpus, nodes):
    with pytest.raises(ConfigError, match=f"{gpus} GPUs can't be shared equally by {nodes} nodes: .*--config gpus="):
        load_bench(root, {"gpus": gpus, "nodes": nodes})


def test_gpus_that_nodes_share_are_taken(root):
    assert load_bench(root, {"gpus": 8, "nodes": 2}).config.nodes == 2
    assert load_bench(root, {"gpus": 0, "nodes": 3}).config.nodes == 3


def test_an_end_of_a_schedule_that_has_none_is_refused():
    with pytest.raises(ValueError, match=r"schedule: constant has no end: leave schedule_steps out "):
        TrainingSettings(schedule="constant", schedule_steps=100)
    assert TrainingSettings(schedule_steps=100).schedule == "linear"


def test_batches_that_micro_batches_can_t_share_are_refused_when_read(root):
    """They ended a training at its start, after all that comes before it was computed."""
    said = "batch_queries 16 can't be shared equally by 3 micro-batches .*: make it a multiple of these"
    with pytest.raises(ConfigError, match=said):
        load_bench(root, {"scale": "mini", "set": ["dpr.training.accumulation=3"]})
    said = "by_target.scifact.batch_queries 30 can't be shared equally by 4 micro-batches"
    with pytest.raises(ConfigError, match=said):
        load_bench(root, {"scale": "paper", "set": ["ddr-contrast.target-dam.by_target.scifact.batch_queries=30"]})


@pytest.mark.parametrize(
    ("model", "ignored", "read", "message"),
    [
        (IndexSettings, {"hnsw_links": 64}, {"index": "hnsw"}, "with index: flat: .* set index: hnsw "),
        (IndexSettings, {"recall_queries": 9}, {"index": "ivfpq"}, "with index: flat: .* set index: hnsw or ivfpq "),
        (LexicalSettings, {"feedback_terms": 20}, {"expansion": "rm3"}, "with expansion: none: "),
        (FusionSettings, {"rank_constant": 9}, {"fusion": "reciprocal_rank"}, "with fusion: standard_score: "),
        (GenerateSettings, {"phrase_words": (3, 4)}, {"forms": ("titles", "phrases")}, "with forms: sentences: "),
        (
            GenerateSettings,
            {"forms": ("titles",), "least_words": 3},
            {"forms": ("sentences",)},
            "with forms: titles: .* set forms: sentences or phrases ",
        ),
    ],
)
def test_a_value_that_nothing_would_read_is_refused(model, ignored, read, message):
    given = {"runs": ("a", "b"), "fusion": "standard_score"} if model is FusionSettings else {}
    name = list(ignored)[-1]
    with pytest.raises(ValueError, match=f"{name} has no effect {message}"):
        model(**given | ignored)
    assert model(**given | ignored | read).model_dump()[name] == ignored[name]
    default = model.model_fields[name].default
    assert getattr(model(**given | ignored | {name: default}), name) == default, "as settings are passed on whole"


NUMBERS = st.sampled_from(
    ["0", "7", "-3", "+4", "0x1F", "0.5", ".5", "1.", "1.5e-05", "1e3", "1.0e+3", ".inf", "-.inf"]
)
OTHER_NUMBERS = st.sampled_from(
    ["0100", "-017", "1:30", "190:20:30", "1:30.5", "1_000", "0b11", "1_0.5", "0x_1F", "00"]
)


@given(NUMBERS)
def test_usual_numbers_are_read(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("yaml") / "a.yaml"
    path.write_text(f"a: {text}\nb: '{text}'\n")
    read = read_yaml(path)
    assert float(read["a"]) == (int(text, 16) if "x" in text else float(text.replace(".inf", "inf")))
    assert read["b"] == text


@given(OTHER_NUMBERS)
def test_numbers_that_yaml_takes_for_others_are_text_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("yaml") / "a.yaml"
    path.write_text(f"x: 1\na: [{text}]\n")
    try:
        assert read_yaml(path)["a"] == [text]
    except ConfigError as error:
        assert f"a.yaml:2: {text} is no usual number" in str(error)
    path.write_text(f"a: '{text}'\n")
    assert read_yaml(path) == {"a": text}


@pytest.mark.parametrize("text", ["2024-31-12", "2023-02-29", "2024-01-01 25:00:00"])
def test_what_looks_like_a_date_and_is_none_names_its_line(tmp_path, text):
    path = tmp_path / "a.yaml"
    path.write_text(f"x: 1\nlabel: {text}\n")
    with pytest.raises(ConfigError, match=f"a.yaml:2: is no YAML \\({text}: .* must be in|a.yaml:2: .*out of range"):
        read_yaml(path)
    with pytest.raises(ConfigError, match="put it in quotes"):
        read_value(text)


def test_a_setting_that_went_is_still_written_and_taken_with_its_only_value():
    settings = GroupSettings.model_validate({"kappa": 0.5, "update_every": 1})
    assert settings.model_dump()["update_every"] == 1 and "update_every" not in settings.model_dump(exclude_unset=True)
    assert GroupSettings.model_validate(settings.model_dump()) == settings
    with pytest.raises(ConfigError, match="unknown key 'update_every'"):
        validate(GroupSettings, {"update_every": 2}, "x")
