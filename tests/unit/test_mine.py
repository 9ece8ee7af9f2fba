"""Stage `mine_negatives`: files, statistics by hand, properties, and input that is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.training_helpers import seal

from zerodr.artifacts.rankings import Rankings, RankingsWriter
from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.access import CORPUS_SCHEMA, QUERY_SCHEMA, read_qrels
from zerodr.config.training import NegativesSettings
from zerodr.errors import ArtifactError, CollectionError, ConfigError
from zerodr.mining import dev
from zerodr.mining import mine as module
from zerodr.mining.batch import SCHEMA
from zerodr.mining.dev import held_out
from zerodr.mining.mine import MineSettings, mine
from zerodr.mining.positives import Positives, known_positives
from zerodr.mining.statistics import histogram
from zerodr.training.data.examples import load_examples

Row = tuple[str, list[str], list[str], list[int]]
DOCUMENTS = [f"d{n}" for n in range(12)]
RANKED = {
    "q0": ["d0", "d1", "d2", "d3", "d4", "d5"],  # one positive, d1
    "q1": ["d6", "d5", "d4", "d3", "d2", "d1"],  # positives d2 (grade 2), d10 (2), d3 (1); d9 has grade 0
    "q2": ["d7", "d8"],  # positives d7 and d8
    "q3": [],  # positive d0
    "q4": ["d1", "d2", "d3", "d4", "d5", "d6"],  # judged, no positive
}
QRELS = [
    ("q1", "d3", 1),
    ("q1", "d10", 2),
    ("q1", "d2", 2),
    ("q1", "d9", 0),
    ("q0", "d1", 1),
    ("q0", "d1", 1),
    ("q2", "d8", 1),
    ("q2", "d7", 1),
    ("q3", "d0", 1),
    ("q4", "d11", 0),
    ("q3", "gone", 3),
]


def make_source(folder: Path, texts: dict[str, str] | None = None, qrels: list[tuple] = QRELS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    said = [(texts or {}).get(name, f"text of {name}") for name in DOCUMENTS]
    pq.write_table(pa.table([DOCUMENTS, [""] * len(DOCUMENTS), said], schema=CORPUS_SCHEMA), folder / "corpus.parquet")
    names = [*RANKED, "other"]
    pq.write_table(pa.table([names, [f"ask {n}" for n in names]], schema=QUERY_SCHEMA), folder / "queries.parquet")
    lines = "".join(f"{query}\t{document}\t{grade}\n" for query, document, grade in qrels)
    (folder / "qrels.train.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    seal(folder)
    return folder


def write_candidates(path: Path, ranked: dict[str, list[str]], depth: int = 6, piece: int = 100) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = list(ranked.items())
    with RankingsWriter(path, depth) as writer:
        for first in range(0, len(rows), piece):
            part = rows[first : first + piece]
            documents = [document for _, row in part for document in row]
            sizes = np.array([len(row) for _, row in part], np.int64)
            writer.write(
                Rankings(
                    pa.array([query for query, _ in part], pa.string()),
                    sizes,
                    pa.array(documents, pa.string()),
                    np.zeros(len(documents), np.float32),
                )
            )
    return path


@pytest.fixture
def here(tmp_path, monkeypatch):
    make_source(tmp_path / "results/source")
    write_candidates(tmp_path / "results/candidates.parquet", RANKED)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_mine(
    name: str = "ep0",
    candidates: str | None = "results/candidates.parquet",
    previous: str = "",
    stage_index: int = 0,
    seed: int = 13,
    split: str = "train",
    dev_queries: int = 0,
    **negatives: Any,
) -> Path:
    inputs = {"source": "results/source/manifest.json"}
    inputs |= {"candidates": candidates} if candidates else {}
    inputs |= {"previous": f"results/mined/{previous}/manifest.json"} if previous else {}
    kept = {"source": "bm25", "depth": 6, "count": 3, "sampling": "top"} | negatives
    params = {"negatives": kept, "split": split, "stage": name, "stage_index": stage_index, "dev_queries": dev_queries}
    run_spec(
        StageSpec(
            "mine_negatives",
            1,
            {},
            inputs,
            {"mined": f"results/mined/{name}/manifest.json"},
            params,
            seed,
        )
    )
    return Path("results/mined") / name


def rows_of(folder: Path) -> list[Row]:
    table = pq.read_table(folder / "mined.parquet")
    assert table.schema.equals(SCHEMA)
    return [tuple(row.values()) for row in table.to_pylist()]


def facts_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "statistics.json").read_text())


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


def test_statistics_by_hand(here):
    """Negatives at ranks 1 3 4 and 1 2 3; best positives at 2 (q0), 4 (q1: d3), 1 (q2), nowhere (q3)."""
    folder = run_mine()
    facts = facts_of(folder)
    assert facts["queries"] == {"asked": 5, "mined": 4, "short": 0, "empty": 2, "without_positive": 1}
    assert facts["positives"] == {"known": 7, "missing": 1}
    assert facts["negatives"] == {
        "kept": 6,
        "distinct": 6,
        "mean_rank": pytest.approx(14 / 6),
        "median_rank": 2.5,
        "top10_share": 1.0,
    }
    assert facts["best_positive"] == {
        "found_share": 0.75,
        "median_rank": 2.0,
        "reciprocal_rank": pytest.approx((1 / 2 + 1 / 4 + 1) / 4),
    }
    assert facts["suspects"] == {
        "above_best_positive": 4,
        "above_share": pytest.approx(4 / 6),
        "copies_of_positives": 0,
        "known_positives": 0,
    }
    assert facts["previous"] is None and facts["stage"] == "ep0" and facts["split"] == "train"
    assert [row["negatives"] for row in facts["histogram"]] == [2, 1, 2, 1, 0, 0]
    record = read_record("results/mined/ep0/manifest.json")
    metrics = {row["name"]: row["value"] for row in record["metrics"]}
    assert metrics["queries_empty"] == 2 and metrics["best_positive_found_share"] == 0.75
    assert record["notes"]["statistics"]["negatives"]["kept"] == 6


def test_short_pools_are_kept_and_told(here, caplog):
    facts = facts_of(run_mine(count=5))
    assert facts["queries"]["short"] == 1 and facts["queries"]["empty"] == 2  # q1 has four candidates left
    said = caplog.text
    for words in ("1 queries have no positive and do not train", "1 queries have fewer", "2 queries have no negative"):
        assert words in said


def test_histogram_covers_the_ranks():
    counts = np.zeros(201, np.int64)
    counts[[11, 29, 30, 200]] = 1, 2, 4, 8
    found = histogram(counts, 10)
    assert [(row["from"], row["to"]) for row in found][:2] == [(11, 29), (30, 48)] and len(found) == 10
    assert [row["negatives"] for row in found] == [3, 4, 0, 0, 0, 0, 0, 0, 0, 8] and found[-1]["to"] == 200
    assert [(row["from"], row["to"]) for row in histogram(np.zeros(4, np.int64), 1)] == [(2, 2), (3, 3)]


def test_copies_of_a_positive_are_counted(here):
    make_source(here / "results/source", {"d1": "same words", "d3": " same words ", "d6": "same words"})
    facts = facts_of(run_mine())
    assert facts["suspects"]["copies_of_positives"] == 2  # d3 for q0; d6 for q1, whose positive is d3


def test_overlap_with_the_previous_stage(here):
    """q0 keeps 2 of its 3 negatives, q1 two of three, q2 and q3 have none."""
    run_mine("ep0")
    facts = facts_of(run_mine("ep1", previous="ep0", stage_index=1, skip=1))
    assert rows_of(Path("results/mined/ep1"))[0][2] == ["d2", "d3", "d4"]
    assert rows_of(Path("results/mined/ep1"))[1][2] == ["d5", "d4", "d1"]
    assert facts["previous"] == {"common": 2, "share": pytest.approx(2 / 3)}


def test_overlap_counts_common_queries_only(here):
    path = run_mine("ep0") / "mined.parquet"
    pq.write_table(pq.read_table(path).slice(0, 1), path)  # q0
    seal(path.parent)
    facts = facts_of(run_mine("ep1", previous="ep0", skip=1))
    assert facts["previous"] == {"common": 1, "share": pytest.approx(2 / 3)}


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
    monkeypatch.setattr(dev, "LARGEST_SHARE", 2)
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


def test_a_foreign_previous_stage_is_refused(here):
    run_mine("ep0")
    folder = Path("results/mined/ep0")
    rows = pq.read_table(folder / "mined.parquet").to_pylist()
    rows[0]["negatives"][0] = "strange"
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / "mined.parquet")
    seal(folder)
    with pytest.raises(ArtifactError, match="the first is strange"):
        run_mine("ep1", previous="ep0")
    pq.write_table(pa.table({"query": ["q0"]}), folder / "mined.parquet")
    seal(folder)
    with pytest.raises(ArtifactError, match="expected columns"):
        run_mine("ep1", previous="ep0")


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
