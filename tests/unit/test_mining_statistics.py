"""Statistics of mined negatives: by hand, copies of positives, overlap with the stage before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.mine_helpers import facts_of, here, make_source, rows_of, run_mine
from tests.unit.training_helpers import seal

from zerodr.artifacts.record import read_record, record_path
from zerodr.errors import ArtifactError
from zerodr.mining.statistics import SCHEMA, histogram

__all__ = ["here"]


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
    record_path(path.parent).unlink(missing_ok=True)  # with its record, it would count as damaged
    seal(path.parent)
    facts = facts_of(run_mine("ep1", previous="ep0", skip=1))
    assert facts["previous"] == {"common": 1, "share": pytest.approx(2 / 3)}


def test_a_foreign_previous_stage_is_refused(here):
    run_mine("ep0")
    folder = Path("results/mined/ep0")
    rows = pq.read_table(folder / "mined.parquet").to_pylist()
    rows[0]["negatives"][0] = "strange"
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / "mined.parquet")
    record_path(folder).unlink(missing_ok=True)
    seal(folder)
    with pytest.raises(ArtifactError, match="the first is strange"):
        run_mine("ep1", previous="ep0")
    pq.write_table(pa.table({"query": ["q0"]}), folder / "mined.parquet")
    seal(folder)
    with pytest.raises(ArtifactError, match="expected columns"):
        run_mine("ep1", previous="ep0")
