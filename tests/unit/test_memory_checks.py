"""Checks of recipes with memories, when they are read: settings, sizes of memories, where episodes start."""

from __future__ import annotations

import pytest
from tests.unit.memory_plan_helpers import EPISODE, add, plan, root

from zerodr.errors import ConfigError

__all__ = ["root"]


def test_a_given_augmenter_that_does_not_exist_or_comes_from_itself_is_refused(root):
    for init, telling in (("t5-ance/ep7", "did you mean t5-ance/ep"), ("mine/moma1", "comes from mine itself")):
        add(root, chain={"moma1": EPISODE | {"augmenter": {"mode": "frozen", "init": init}}})
        with pytest.raises(ConfigError, match=telling):
            plan(root)


@pytest.mark.parametrize(
    ("change", "telling"),
    [
        ({"memory": {"memories": ["memory-mush"]}}, "did you mean memory-mesh"),
        ({"memory": {"memories": ["target"]}}, "target is no memory of training"),
        ({"memory": {"documents": 1}}, "augmenter.selected 2 is more than the 1 documents"),
        ({"augmenter": {"mode": "own", "selected": 2}}, "selected is for mode: learned"),
        ({"augmenter": {"mode": "own", "init": "t5-ance/ep1"}}, "init is for mode: frozen, the mode is own"),
        ({"objective": {"name": "adist"}}, "objective.name': 'adist' is no loss, known: info_nce"),
        ({"training": {"keep_optimizer": True}}, "not for moma stages"),
        ({"training": {"lora_rank": 4}}, "training.lora_rank is not for moma stages"),
        ({"generate": {"count": 10}, "scope": "target"}, "generate is not for moma stages"),
        ({"keep_index": "all-minilm-l6-v2"}, "keep_index is not for moma stages"),
        ({"teacher": "cross-encoder", "objective": {"name": "kl"}}, "teacher does not go with a moma stage"),
        ({"memory": {"memories": ["memory-mesh", "memory-mesh"]}}, "memory memory-mesh stands twice"),
        (
            {"memory": {"memories": ["memory-mesh"], "documents": 40000}},
            r"memories: hold 30764 documents \(memory-mesh: 30764\), a query is augmented with 40000: .* at most 30764",
        ),
        (
            {"augmenter": {"selected": 2, "objective": {"name": "kl"}}},
            "augmenter.objective kl follows a teacher's scores",
        ),
        (
            {"augmenter": {"selected": 2, "count": 2}, "objective": {"name": "info_nce", "negatives_per_query": 3}},
            "negatives_per_query 3 of the augmenter's loss is more than augmenter.count 2",
        ),
        (
            {"augmenter": {"selected": 2, "objective": {"name": "adist"}}, "training": {"consecutive_negatives": 2}},
            "takes one negative, but the augmenter's loss reads all documents of a query at once",
        ),
        (
            {"augmenter": {"selected": 2, "objective": {"name": "pairwise_nll", "negatives_per_query": 0}}},
            "augmenter.objective pairwise_nll compares with negatives",
        ),
        ({"training": {"precision": "fp16"}}, "moma1: training.precision: fp16 is refused for T5"),
    ],
)
def test_what_can_not_be_meant(root, change, telling):
    add(root, chain={"moma1": EPISODE | change})
    with pytest.raises(ConfigError, match=telling):
        plan(root)


def test_memories_that_no_query_reads_are_refused(root):
    add(root, inference={"documents": 0, "memories": ["memory-mesh"]})
    with pytest.raises(ConfigError, match="documents: 0 reads no memory: leave memories"):
        plan(root)


def test_largest_k_that_a_memory_holds_is_taken(root):
    add(root, chain={"moma1": EPISODE | {"memory": {"memories": ["memory-mesh"], "documents": 30764}}})
    assert plan(root)


@pytest.mark.parametrize(
    ("encoder", "telling"),
    [
        (
            {"init": "dpr/ep0"},
            "moma1: learns its augmenter .* T5's decoder, which init 'dpr/ep0' has not .pooling: mean",
        ),
        ({"init": "dpr+scratch/ep0", "pooling": "decoder_first"}, "init 'dpr.scratch/ep0' has not .pooling: mean"),
        ({"init": "google/t5", "pooling": "mean"}, "init 'google/t5' has not .pooling: mean"),
        ({"init": "google/t5", "pooling": "decoder_first", "towers": "separate"}, "one network, towers are separate"),
        ({"init": "scratch"}, "init 'scratch' has not .pooling: cls, expected decoder_first"),
        ({"init": "t5-ance/ep0", "pooling": "decoder_first"}, None),
        ({"init": "google/t5", "pooling": "decoder_first"}, None),
        ({"init": "scratch", "architecture": {"family": "t5"}, "pooling": "decoder_first"}, None),
    ],
)
def test_episodes_start_from_a_t5_as_far_as_settings_tell(root, encoder, telling):
    add(root, encoder=encoder)
    if telling is None:
        assert plan(root)
    else:
        with pytest.raises(ConfigError, match=telling):
            plan(root)


def test_mixtures_of_rows_are_checked_with_their_targets_and_source_when_read(root):
    add(root, inference={"memories": ["target", "memory-msmarco"]})
    chosen = {"methods": ("mine",), "source": "squad-v1.1"}
    assert plan(root, collections=("scifact",), **chosen)
    assert plan(root, collections=("scifact", "msmarco"), methods=("bm25-flat",)), "mine is no row"
    with pytest.raises(ConfigError, match="mine: memories of msmarco: msmarco and memory-msmarco are the same corpus"):
        plan(root, collections=("scifact", "msmarco"), **chosen)
    add(root, inference={"documents": 4000})
    assert plan(root, collections=("scifact",), **chosen), "memory-mesh makes up for what scifact lacks"
    add(root, inference={"memories": ["target"], "documents": 4000})
    with pytest.raises(ConfigError, match=r"memories of nfcorpus: hold 3633 documents .*, a query is .* with 4000"):
        plan(root, collections=("scifact", "nfcorpus"), **chosen)
    add(root, chain={"moma1": EPISODE | {"memory": {"memories": ["source", "memory-msmarco"]}}})
    with pytest.raises(ConfigError, match="stage moma1: memories: msmarco and memory-msmarco are the same corpus"):
        plan(root, collections=("scifact",), methods=("mine",), source="msmarco")


def test_memories_of_unknown_size_are_not_refused(root, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own/corpus.tsv").write_text("1\ttext\n")
    memory = {"memories": ["memory-mesh", "own"], "documents": 40000}
    add(root, chain={"moma1": EPISODE | {"memory": memory}})
    assert plan(root, byo=str(tmp_path / "own"))


def test_memories_come_last_and_inference_belongs_to_them(root):
    plain = {"objective": {"name": "info_nce"}}
    add(root, chain={"moma1": EPISODE, "ep1": plain})
    with pytest.raises(ConfigError, match="goes on after stage moma1 with a stage without memories"):
        plan(root)
    add(root, chain={"ep1": plain}, inference={"documents": 3})
    with pytest.raises(ConfigError, match="inference: is for chains that end with a stage of kind moma"):
        plan(root)
    add(root, inference={"memories": ["targett"]})
    with pytest.raises(ConfigError, match="did you mean target"):
        plan(root)


def test_an_index_is_for_an_own_augmenter(root):
    stage = EPISODE | {"memory": {"search": {"index": "hnsw"}}, "augmenter": {"mode": "frozen", "init": "t5-ance/ep0"}}
    add(root, chain={"moma1": stage})
    with pytest.raises(ConfigError, match="memory.search is for a stage's own augmenter, but augmenter.init names one"):
        plan(root)
