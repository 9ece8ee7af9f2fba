"""List the queries that gained and lost most between two runs, from their evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from zerodr.collections.access import queries_file
from zerodr.errors import ArtifactError, nearest
from zerodr.lineage.graph import Graph

if TYPE_CHECKING:
    import pandas as pd

EVALUATION = "evaluate_run"
SIDES = ("A", "B")


def per_query_file(graph: Graph, artifact: str) -> str | None:
    """Return the per-query metrics of an evaluation, or of the one that used this run; None for other artifacts."""
    records = [graph.require(artifact), *(graph.require(edge.user) for edge in graph.down(artifact))]
    return next((record["outputs"]["per_query"] for record in records if record["rule"] == EVALUATION), None)


def query_moves(left: str, right: str, metric: str) -> pd.DataFrame:
    """Compare two evaluations by query: columns `query`, `A`, `B`, `change` (B - A), largest gain first.

    Ties are in order of the query. A query that one side lacks counts 0 there, as in the averages.
    """
    a, b = (_metric_by_query(path, metric).rename(side) for path, side in zip((left, right), SIDES, strict=True))
    frame = a.to_frame().join(b, how="outer").fillna(0.0).reset_index(names="query")
    frame["change"] = frame["B"] - frame["A"]
    return frame.sort_values(["change", "query"], ascending=[False, True], kind="stable").reset_index(drop=True)


def _metric_by_query(path: str, metric: str) -> pd.Series:
    import pandas as pd

    if not Path(path).exists():
        raise ArtifactError(path, "is missing", f"build it: snakemake {path}")
    frame = pd.read_parquet(path)
    numbers = frame.set_index("query").select_dtypes("number")
    if metric not in numbers:
        raise ArtifactError(f"{path}: {metric}", "is no per-query metric", nearest(metric, numbers.columns))
    return numbers[metric].astype(float)


def render_winners(graph: Graph, left: str, right: str, metric: str, count: int) -> list[str]:
    """Render the largest gains and losses as lines; none when the artifacts are no runs or evaluations."""
    files = [per_query_file(graph, artifact) for artifact in (left, right)]
    if None in files:
        return []
    moves = query_moves(str(files[0]), str(files[1]), metric)
    texts = _query_texts(graph, str(files[1]))
    up, down = (moves["change"] > 0).sum(), (moves["change"] < 0).sum()
    lines = ["", f"queries by {metric}: {up} better in B, {down} worse, {len(moves) - up - down} equal"]
    for title, rows in (("gains", moves.head(count)), ("losses", moves.iloc[::-1].head(count))):
        sign = 1 if title == "gains" else -1
        rows = rows[rows["change"] * sign > 0]
        lines += [f"  biggest {title}:"] if len(rows) else []
        for query, a, b, change in rows.itertuples(index=False):
            lines.append(f"    {change:+.4f}  {a:.4f} -> {b:.4f}  {query}  {texts.get(query, '')[:80]}".rstrip())
    return lines


def _query_texts(graph: Graph, per_query: str) -> dict[str, str]:
    """Map query ids to texts of the collection that the evaluation read."""
    import pandas as pd

    for entry in graph.require(per_query)["inputs"]:
        path = queries_file(Path(entry["path"]).parent)
        if entry["name"] == "collection" and path.exists():
            frame = pd.read_parquet(path, columns=["id", "text"])
            return dict(zip(frame["id"], frame["text"], strict=True))
    return {}
