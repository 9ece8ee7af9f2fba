"""Stage `mine_negatives`: files, samples of queries, properties, and input that is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.config_helpers import add_variants, lab_plan, params, root
from tests.unit.mine_helpers import (
    DOCUMENTS,
    RANKED,
    facts_of,
    here,
    make_source,
    rows_of,
    run_mine,
    write_candidates,
)
from tests.unit.training_helpers import seal

from zerodr.artifacts.rankings import Rankings, RankingsWriter
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.access import QUERY_SCHEMA, read_qrels
from zerodr.config.training import NegativesSettings
from zerodr.errors import ArtifactError, CollectionError, ConfigError
from zerodr.mining import mine as module
from zerodr.mining import sample as sampling
from zerodr.mining.mine import MineSettings, mine
from zerodr.mining.positives import Positives, known_positives
from zerodr.mining.sample import held_out
from zerodr.training.data.examples import load_examples

__all__ = ["here", "root"]


def test_the_file(here):
    """All positives by grade, then id; negatives by rank, without any of them; judged zero is no positive."""
    assert rows_of(run_mine()) == [
        ("q0", ["d1"], ["d0", "d2", "d3"], [1, 3, 4]),
        ("q1", ["d10", "d2", "d3"], ["d6", "d5", "d4"], [1, 2, 3]),
        ("q2", ["d7", "d8"], [], []),
        ("q3", ["d0"], [], []),
    ]


def test_one_keeps_out_the_first_positive_alone(here):
    rows = rows_of(run_mine(exclude="one", count=6))
    assert rows[0][2] == ["d0", "d2", "d3", "d4", "d5"]
    assert rows[1][2:] == (["d6", "d5", "d4", "d3", "d2", "d1"], [1, 2, 3, 4, 5, 6])
    assert rows[2][1:] == (["d7", "d8"], ["d8"], [2])
    assert facts_of(Path("results/mined/ep0"))["suspects"] == {
        "above_best_positive": 4,
        "above_share": pytest.approx(4 / 12),
        "copies_of_positives": 0,
        "known_positives": 3,
    }


def test_training_reads_it(here):
    examples = load_examples(run_mine(), Path("results/source"), " ")
    assert examples.queries.to_pylist() == ["q0", "q1", "q2", "q3"]
    assert examples.document_ids(examples.positives[1]) == ["d10", "d2", "d3"]
    assert examples.document_ids(examples.negatives[0]) == ["d0", "d2", "d3"] and len(examples.negatives[3]) == 0


def test_without_negatives(here):
    folder = run_mine(candidates=None, source="none")
    assert [row[2:] for row in rows_of(folder)] == [([], [])] * 4 and rows_of(folder)[1][1] == ["d10", "d2", "d3"]
    facts = facts_of(folder)
    assert facts["queries"]["mined"] == 4 and facts["negatives"]["mean_rank"] is None
    assert len(load_examples(folder, Path("results/source"), " ")) == 4


def test_a_sample_of_queries_gets_what_all_get(here):
    seen = set()
    for seed in range(13, 19):
        everyone = {row[0]: row for row in rows_of(run_mine("all", sampling="uniform", seed=seed))}
        some = rows_of(run_mine("some", sampling="uniform", queries=2, seed=seed))
        assert len(some) == 2 and all(everyone[row[0]] == row for row in some)
        seen |= {row[0] for row in some}
    assert seen == {"q0", "q1", "q2", "q3"}
    assert facts_of(Path("results/mined/some"))["queries"]["asked"] == 5


def test_a_sample_always_holds_the_queries_of_dev(here, monkeypatch):
    monkeypatch.setattr(sampling, "LARGEST_SHARE", 2)
    for seed in range(13, 19):
        qrels = read_qrels(Path("results/source"), "train")
        held = held_out(qrels.loc[qrels["grade"] > 0, "query"].tolist(), 1, seed)
        names = {row[0] for row in rows_of(run_mine("some", queries=1, seed=seed, dev_queries=1))}
        assert len(held) == 1 and held <= names and len(names) <= 2


def test_equal_bytes_whatever_the_pieces(here, monkeypatch):
    first = [(path.name, path.read_bytes()) for path in sorted(run_mine("a", sampling="uniform").iterdir())]
    monkeypatch.setattr(module, "ENTRIES", 1)
    monkeypatch.setattr(module, "text_numbers", lambda source: np.arange(len(DOCUMENTS)))
    again = run_mine("b", sampling="uniform")
    assert (again / "mined.parquet").read_bytes() == dict(first)["mined.parquet"]
    assert facts_of(again) == json.loads(dict(first)["statistics.json"]) | {"stage": "b"}


QUERY = st.tuples(st.permutations(range(9)), st.integers(0, 9), st.sets(st.integers(0, 8), min_size=1, max_size=4))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(QUERY, min_size=1, max_size=6),
    st.integers(0, 3),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from(["uniform", "top"]),
    st.sampled_from(["all", "one"]),
    st.integers(1, 40),
    st.randoms(),
)
def test_the_rules_hold(tmp_path_factory, queries, skip, more, count, sampling, exclude, piece, random):
    """Only ranks skip+1..depth, never what is excluded, as many as there are; the order of candidates is no matter."""
    corpus = pa.array([f"d{n}" for n in range(9)])
    ranked = {f"q{n}": [f"d{d}" for d in order[:size]] for n, (order, size, _) in enumerate(queries)}
    own = [sorted(positives) for _, _, positives in queries]
    known = Positives(
        pa.array(ranked),
        np.array([len(row) for row in own]),
        np.array([d for row in own for d in row], np.int32),
        pa.array(ranked),
        0,
    )
    kept = NegativesSettings(depth=skip + more, skip=skip, count=count, sampling=sampling, exclude=exclude)
    made = []
    for order in (list(ranked), random.sample(list(ranked), len(ranked))):
        path = tmp_path_factory.mktemp("m") / "c.parquet"
        write_candidates(path, {query: ranked[query] for query in order}, depth=9)
        rows = {}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "ENTRIES", piece)
            stage = MineSettings(negatives=kept, split="train", stage="ep0", stage_index=0)
            for batch in mine(path, known, corpus, "c", stage, 5):
                for row in batch.table(known, corpus).to_pylist():
                    rows[row["query"]] = row
        made.append(rows)
    assert made[0] == made[1] and set(made[0]) == set(ranked)
    for number, (query, ranking) in enumerate(ranked.items()):
        row = made[0][query]
        out = {f"d{d}" for d in (own[number] if exclude == "all" else own[number][:1])}
        pool = [(rank, d) for rank, d in enumerate(ranking, 1) if skip < rank <= skip + more and d not in out]
        found = list(zip(row["negative_ranks"], row["negatives"], strict=True))
        assert found == sorted(found) and set(found) <= set(pool) and len(found) == min(count, len(pool))
        assert sampling == "uniform" or found == pool[:count]
        assert row["positives"] == [f"d{d}" for d in own[number]]


def test_positives_of_a_split(here):
    corpus = pa.array(DOCUMENTS)
    found = known_positives(Path("results/source"), "train", corpus)
    assert found.queries.to_pylist() == ["q0", "q1", "q2", "q3"] and found.all_queries.to_pylist() == list(RANKED)
    assert found.sizes.tolist() == [1, 3, 2, 1] and found.missing == 1
    sizes, documents = found.take(np.array([2, 0]))
    assert sizes.tolist() == [2, 1] and corpus.take(pa.array(documents)).to_pylist() == ["d7", "d8", "d1"]


def test_a_split_without_positives_is_refused(here):
    for qrels in ([("q0", "d1", 0)], [("q0", "gone", 1)]):
        make_source(here / "results/source", qrels=qrels)
        with pytest.raises(CollectionError, match="source/train: none of its 1 judgements .*choose another source"):
            run_mine()
    with pytest.raises(CollectionError, match="no judgements for this split"):
        run_mine(split="dev")


def test_candidates_of_another_split_or_corpus_are_refused(here):
    place = here / "results/other.parquet"
    write_candidates(place, {query: row for query, row in RANKED.items() if query != "q1"})
    with pytest.raises(ArtifactError, match="lacks 1 of the 4 queries of split train that are mined, the first is q1"):
        run_mine(candidates="results/other.parquet")
    write_candidates(place, RANKED | {"q3": ["d0", "strange"]})
    with pytest.raises(ArtifactError, match="not in collection source, the first is strange"):
        run_mine(candidates="results/other.parquet")
    write_candidates(place, RANKED, depth=5)
    with pytest.raises(ArtifactError, match="ranked to depth 5, expected at least 6"):
        run_mine(candidates="results/other.parquet")
    write_candidates(place, RANKED | {"extra": ["nowhere"]})
    assert len(rows_of(run_mine(candidates="results/other.parquet"))) == 4


def test_inputs_that_contradict_the_settings_are_refused(here):
    with pytest.raises(ConfigError, match="negatives.source is none, and the stage has"):
        run_mine(source="none")
    with pytest.raises(ConfigError, match="negatives.source is bm25, and the stage lacks"):
        run_mine(candidates=None)
    with pytest.raises(ConfigError, match="leaves none of the 6 ranks, found 6"):
        run_mine(skip=6)
    with pytest.raises(ConfigError, match="unknown key"):
        run_mine(amount=3)


def test_leaders_take_the_place_of_positives(here):
    """Known positives are left out; the first of the rest leads, with the scores of all that were chosen."""
    scores = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
    with RankingsWriter(Path("results/candidates.parquet"), 6) as writer:
        for query in RANKED:
            ranked = ["d1", "d2", "d4", "d5"] if query != "q3" else []
            count = len(ranked)
            writer.write(Rankings(pa.array([query]), np.array([count]), pa.array(ranked, pa.string()), scores[:count]))
    spec = StageSpec(
        "mine_negatives",
        1,
        {},
        {"source": "results/source/manifest.json", "candidates": "results/candidates.parquet"},
        {"mined": "results/mined/led/manifest.json"},
        {
            "leaders": True,
            "negatives": {"source": "both", "depth": 6, "count": 2, "sampling": "top"},
            "split": "train",
            "stage": "led",
            "stage_index": 0,
        },
        13,
    )
    run_spec(spec)
    rows = {row["query"]: row for row in pq.read_table("results/mined/led/mined.parquet").to_pylist()}
    assert rows["q0"] == {
        "query": "q0",
        "positives": ["d2"],
        "negatives": ["d4", "d5"],
        "negative_ranks": [3, 4],
        "scores": [0.25, 0.125, 0.0625],
    }
    assert rows["q1"]["positives"] == ["d1"], "d2 is a positive of q1"
    assert rows["q3"]["positives"] == [] and np.isnan(rows["q3"]["scores"]).all()


def test_a_query_that_is_a_document_is_no_negative_of_itself(here):
    source = make_source(Path("results/source"), qrels=[("d0", "d1", 1), ("q0", "d1", 1)])
    table = pa.table([["d0", "q0"], ["one", "two"]], schema=QUERY_SCHEMA)
    pq.write_table(table, source / "queries.parquet")
    seal(source)
    write_candidates(Path("results/candidates.parquet"), dict.fromkeys(["d0", "q0"], ["d0", "d1", "d2", "d3"]))
    rows = {query: negatives for query, _, negatives, _ in rows_of(run_mine(exclude_self=True))}
    assert rows == {"d0": ["d2", "d3"], "q0": ["d0", "d2", "d3"]}


def test_a_source_of_such_queries_says_so(root):
    add_variants(root, "dpr", duplicates={"settings": {"source": "quora", "source_split": "dev"}})
    made = lab_plan(root)
    settings = [params(made, "mine_negatives", model=name, stage="ep0") for name in ("dpr", "dpr+duplicates")]
    assert [one["settings"].get("exclude_self") for one in settings] == [None, True]
