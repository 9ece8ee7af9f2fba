"""Configuration: what is accepted, how mistakes are answered, canonical form."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerodr.config.base import validate
from zerodr.config.canonical import canonical_json
from zerodr.config.load import load_bench
from zerodr.config.methods import EncoderMethod, LexicalSettings
from zerodr.config.settings import Config
from zerodr.errors import ConfigError


@pytest.fixture
def project(root, tmp_path):
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
        ({"seed": "x"}, "key 'seed'"),
        ({"seed": -1}, "found -1"),
        ([], "expected a mapping of settings, found list"),
    ],
)
def test_mistakes_name_key_value_and_nearest_name(value, telling):
    with pytest.raises(ConfigError, match="config.yaml") as caught:
        validate(Config, value, "config/config.yaml")
    assert telling in str(caught.value)


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


def test_a_fusion_of_a_fusion_is_refused(project):
    (project / "config/methods/twice.yaml").write_text(
        "kind: fusion\nlabel: x\ndescription: x\nsettings: {runs: [hybrid, bm25-flat]}\n"
    )
    with pytest.raises(ConfigError, match="has no ranking of its own"):
        load_bench(project, {})


def test_a_registry_row_with_a_missing_cell_names_its_line(project):
    path = project / "config/collections.tsv"
    path.write_text(path.read_text() + "lonely\n")
    number = len(path.read_text().splitlines())
    with pytest.raises(ConfigError, match=f"collections.tsv:{number}"):
        load_bench(project, {})


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.parquet", "notes.txt"])
def test_an_own_folder_without_documents_is_refused_when_read(project, tmp_path, name):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / name).write_text("")
    found = "an empty" if name.startswith("corpus") else "no"
    with pytest.raises(ConfigError, match=rf"byo=.*/own: holds {found} corpus\.\{{jsonl,tsv,parquet\}}: put documents"):
        load_bench(project, {"byo": str(tmp_path / "own")})


def test_an_own_folder_becomes_a_collection(project, tmp_path):
    own = tmp_path / "My Notes"
    (own / "qrels").mkdir(parents=True)
    (own / "corpus.jsonl").write_text('{"_id": "1", "text": "a note"}\n')
    (own / "qrels/dev.tsv").write_text("")
    bench = load_bench(project, {"byo": str(own)})
    assert bench.collections["my-notes"].evaluation_split == "dev"
    assert [path.rsplit("/", 1)[1] for path in bench.own_files] == ["corpus.jsonl", "dev.tsv"]


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


def test_a_protocol_without_titles_refuses_lexical_methods(project):
    path = project / "config/protocols.yaml"
    path.write_text(path.read_text() + "untitled: {description: x, title_join: none}\n")
    load_bench(project, {"protocol": "untitled", "methods": ["all-minilm-l6-v2"]})
    with pytest.raises(ConfigError, match="leaves titles out, which bm25-multifield can't"):
        load_bench(project, {"protocol": "untitled", "methods": ["hybrid"]})


def test_a_hub_model_at_paper_scale_needs_its_revision(project):
    (project / "config/methods/hub.yaml").write_text(
        "kind: encoder\nlabel: x\ndescription: x\nsettings: {model: organisation/name}\n"
    )
    load_bench(project, {"scale": "mini", "methods": ["hub"]})
    with pytest.raises(ConfigError, match="revision.*organisation/name"):
        load_bench(project, {"scale": "paper", "methods": ["hub"]})


@pytest.mark.parametrize("gpus, nodes", [(8, 3), (2, 4), (1, 2)])
def test_gpus_that_nodes_cannot_share_are_refused(root, gpus, nodes):
    with pytest.raises(ConfigError, match=f"{gpus} GPUs can't be shared equally by {nodes} nodes: .*--config gpus="):
        load_bench(root, {"gpus": gpus, "nodes": nodes})


def test_gpus_that_nodes_share_are_taken(root):
    assert load_bench(root, {"gpus": 8, "nodes": 2}).config.nodes == 2
    assert load_bench(root, {"gpus": 0, "nodes": 3}).config.nodes == 3
