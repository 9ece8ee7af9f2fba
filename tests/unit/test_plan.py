"""The plan: shards, shared embeddings, gated columns, settings that reach the stages."""

from __future__ import annotations

import json
import re
import shutil
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerodr import papers
from zerodr.config.load import files_of_model, load_bench
from zerodr.errors import ConfigError
from zerodr.plan import Plan
from zerodr.plan.dense import embedded_by
from zerodr.plan.patterns import alternatives
from zerodr.plan.plan import INPUTS, PARAMS
from zerodr.plan.reporting import table
from zerodr.plan.rules import RULES


def plan(root, **changes):
    return Plan(load_bench(root, changes))


def of(collection, model="all-minilm-l6-v2", protocol="standard", **more):
    return SimpleNamespace(collection=collection, model=model, protocol=protocol, **more)


def test_settings_are_canonical_and_name_function_and_version(root):
    text = plan(root).settings("embed_corpus")(of("scifact", shard="00001-of-00003"))
    value = json.loads(text)
    assert "function" not in value and value["version"] >= 1
    assert (value["settings"]["shard"], value["settings"]["shards"]) == (1, 3)
    assert text == json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def test_only_stages_that_make_random_choices_see_the_seed(root):
    def seed(rule, **wildcards):
        return json.loads(plan(root, seed=7).settings(rule)(of("scifact", **wildcards)))["seed"]

    part = {"shard": "00000-of-00001"}
    assert seed("evaluate_run") == 7 and seed("search_shard", model="all-minilm-l6-v2+hnsw", **part) == 7
    assert seed("search_shard", **part) == seed("embed_corpus", **part) == seed("normalize_collection") == 0


@pytest.mark.parametrize("size", [1, 999, 5183, 10_000])
def test_shards_hold_at_most_the_asked_number_of_documents(root, size):
    made = plan(root, shard_documents=size)
    count = made.shard_count("scifact")
    assert (count - 1) * size < 5183 <= count * size
    assert made.shard_names("corpus", "scifact")[-1] == f"corpus-{count - 1:05d}-of-{count:05d}"


def test_variants_of_the_index_use_the_recipes_embeddings(root):
    made = plan(root)
    assert embedded_by(made, "all-minilm-l6-v2+hnsw") == "all-minilm-l6-v2"
    assert embedded_by(made, "all-minilm-l6-v2+bf16") == "all-minilm-l6-v2+bf16"


def test_what_git_writes_into_a_models_folder_is_no_part_of_the_model(tmp_path):
    folder = tmp_path / ".cache" / "model"
    files = ["1_Pooling/config.json", "config.json"]
    for name in (*files, ".git/index", ".cache/huggingface/download/config.json.metadata"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    assert files_of_model(str(folder)) == [str(folder / name) for name in files]


def test_gated_collections_are_left_out_until_they_are_named(root):
    closed = {row.name for row in plan(root, scale="paper").columns}
    opened = {row.name for row in plan(root, scale="paper", gated=("robust04",)).columns}
    assert opened - closed == {"robust04"}
    missing = [row["name"] for row in table(plan(root, scale="paper"), [])["missing"]]
    assert "robust04" in missing and "bioasq" in missing


def test_a_protocol_override_reaches_its_collection_only(root):
    made = plan(root)

    def lengths(name):
        value = made.settings("embed_queries")(of(name, protocol="coco-dr-paper", split="test"))
        settings = json.loads(value)["settings"]
        return settings["query_tokens"], settings["document_tokens"]

    assert lengths("arguana") == (128, 128)
    assert lengths("scifact") == (64, 256)
    assert lengths("nfcorpus") == (64, 128)


def test_own_document_is_left_out_only_where_the_registry_says_so(root):
    made = plan(root)
    for name, expected in (("arguana", True), ("scifact", False)):
        wildcards = SimpleNamespace(collection=name, model="bm25-flat", protocol="standard")
        assert json.loads(made.settings("search_bm25")(wildcards))["settings"]["exclude_self"] is expected


def test_every_rule_has_params_and_inputs():
    assert set(PARAMS) == set(RULES)
    assert set(INPUTS) == set(RULES)


def test_a_rules_functions_are_in_the_module_with_its_files_name(root):
    wrong = []
    for path in sorted((root / "workflow/rules").rglob("*.smk")):
        name = f"zerodr.plan.{path.stem}"
        if path.parent.name == "papers":
            paper = next(paper for paper in papers.NAMES if path.stem.startswith(paper))
            name = f"zerodr.papers.{paper}.plan"
        for rule in re.findall(r"^rule (\w+):", path.read_text(), re.M):
            places = {table[rule].__module__ for table in (INPUTS, PARAMS) if rule in table}
            wrong += [f"{rule}: {place}, expected {name}" for place in places if not f"{place}.".startswith(f"{name}.")]
    assert wrong == []


@given(
    names=st.sets(st.from_regex(r"[ab]{1,3}(\+[ab]{1,2})?(@[ab]{1,2}(\.1)?)?", fullmatch=True)), other=st.text("ab+@.1")
)
def test_a_constraint_matches_its_names_and_nothing_else(names, other):
    pattern = alternatives(names)
    assert all(re.fullmatch(pattern, name) for name in names)
    assert bool(re.fullmatch(pattern, other)) == (other in names)


def test_needs_grow_with_the_collection_and_the_attempt(root):
    made = plan(root, scale="paper")
    small, large = SimpleNamespace(collection="scifact"), SimpleNamespace(collection="msmarco")
    memory = made.machines.memory_mib("index_bm25")
    assert memory(large) > memory(small)
    assert memory(small, attempt=2) == pytest.approx(2 * memory(small), abs=1)
    assert made.machines.gpus("embed_corpus") == 1 and made.machines.gpus("evaluate_run") == 0


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("collections", "language: klingon", "collection zz: language 'klingon': is not known: the nearest of 2"),
        ("collections", "format: csvv", "collection zz: format 'csvv': is not known"),
        ("methods", "settings: {model: 'package:nope'}", "method zz: starts from the package nope, which is not"),
    ],
)
def test_what_no_job_could_do_is_refused_when_the_plan_is_made(root, tmp_path, file, text, message):
    (tmp_path / "resources").symlink_to(root / "resources")
    shutil.copytree(root / "config", tmp_path / "config")
    beginnings = {
        "collections": "collections:\n  zz:\n    {label: Z, archive: z.zip, documents: 5, kind: complete, %s}\n",
        "methods": "kind: encoder\nlabel: D\ndescription: d\n%s\n",
    }
    (tmp_path / f"config/{file}/zz.yaml").write_text(beginnings[file] % text)
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_bench(tmp_path, {})
