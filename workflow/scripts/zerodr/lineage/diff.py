"""Compare two artifacts to find out why a number changed."""

from __future__ import annotations

import difflib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerodr.artifacts.record import Record
from zerodr.collections.access import queries_file
from zerodr.config.measures import is_measure
from zerodr.errors import ArtifactError, nearest
from zerodr.evaluation.numbers import fixed, signed
from zerodr.lineage.graph import Graph, brief, flatten
from zerodr.plan.rules import facts_of

if TYPE_CHECKING:
    import pandas as pd

Row = tuple[str, str, str]
ABSENT = "-"
SIDES = ("A", "B")


def diff(graph: Graph, left: str, right: str, metric: str = "ndcg_cut_10", count: int = 5) -> str:
    """List settings, inputs, code, environment, kernels, cost and metrics in which two artifacts differ.

    For two runs or two evaluations also the `count` queries with the biggest gains and losses in `metric`.
    """
    a, b = graph.require(left), graph.require(right)
    same = "the same bytes" if a["digest"] == b["digest"] else "different bytes"
    lines = [f"A  {left}  {a['digest'][:12]}", f"B  {right}  {b['digest'][:12]}", f"   {same}"]
    lines += _section("rule", _changed(_stage(a), _stage(b)), "rule and version")
    lines += _section("settings", _changed(flatten(a["spec"]["params"]), flatten(b["spec"]["params"])))
    lines += _custom_code(a, b)
    lines += _section("inputs", _changed(_inputs(a), _inputs(b)))
    lines += _code(a["code"], b["code"])
    lines += _section("environment", _changed(_surroundings(a), _surroundings(b)))
    kernels = _kernels(a), _kernels(b)
    lines += _section("kernels", _changed(*kernels), "kind of processor") if any(kernels) else []
    lines += _section("cost", _cost(a, b))
    lines += _metrics(_evaluated(graph, left), _evaluated(graph, right))
    lines += render_winners(graph, left, right, metric, count)
    return "\n".join(lines)


def _custom_code(a: Record, b: Record) -> list[str]:
    """Show which lines of the user's own loss or measures changed."""
    left, right = (record["notes"].get("custom_code", "").splitlines() for record in (a, b))
    changed = list(difflib.unified_diff(left, right, *SIDES, lineterm="", n=1))
    return ["", "code of yours:", *(f"  {line}" for line in changed)] if changed else []


def _surroundings(record: Record) -> dict[str, Any]:
    """Return what computed an artifact, without its Slurm job: that differs in each run and changes no number."""
    return {name: value for name, value in flatten(record["environment"]).items() if name != "slurm_job"}


def _stage(record: Record) -> dict[str, str]:
    return {"rule": record["rule"], "version": str(record["spec"]["version"]), "seed": str(record["seed"])}


def _inputs(record: Record) -> dict[str, str]:
    named: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for entry in record["inputs"]:
        number = counts[entry["name"]]  # of the inputs of its name: others may be there in one record alone
        counts[entry["name"]] += 1
        named[f"{entry['name']}.{number}" if number else entry["name"]] = f"{entry['path']} {entry['digest'][:12]}"
    return named


def _kernels(record: Record) -> dict[str, str]:
    """Name the kind of processor that it was computed as; its kernels decide the last digits."""
    kind = record["notes"].get("processor_kind")
    return {"kind of processor": kind} if kind else {}


def _code(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Compare commit and patch; without a commit the code is unknown, and so is whether it is the same."""
    if a["commit"] is None and b["commit"] is None:
        return ["", "code: unknown, both artifacts come from outside a git checkout"]
    absent = {"commit": "unknown", "dirty_patch_sha256": "none"}
    left, right = ({name: (code[name] or word)[:12] for name, word in absent.items()} for code in (a, b))
    return _section("code", _changed(left, right))


def _cost(a: Record, b: Record) -> list[Row]:
    units = {"seconds": "s", "peak_memory_mib": "MiB", "gpu_hours": "GPU-h", "energy_joules": "J"}
    shown = [(name, unit) for name, unit in units.items() if a[name] or b[name]]
    return [(name, _measured(a[name], unit), _measured(b[name], unit)) for name, unit in shown]


def _measured(value: float | None, unit: str) -> str:
    return "not measured" if value is None else f"{value:g} {unit}"


def _changed(a: dict[str, str], b: dict[str, str]) -> list[Row]:
    names = [*a, *(name for name in b if name not in a)]
    return [(name, a.get(name, ABSENT), b.get(name, ABSENT)) for name in names if a.get(name) != b.get(name)]


def _section(title: str, rows: list[Row], subject: str = "") -> list[str]:
    if not rows:
        return ["", f"{title}: the same {subject or title}" if title != "cost" else "cost: not recorded"]
    width = min(40, max(len(name) for name, _, _ in rows))
    lines = ["", f"{title}:"]
    for name, left, right in rows:
        if len(left) + len(right) > 70:
            lines += [f"  {name:<{width}}  A {brief(left, 110)}", f"  {'':<{width}}  B {brief(right, 110)}"]
        else:
            lines.append(f"  {name:<{width}}  {left}  ->  {right}")
    return lines


def _evaluation(graph: Graph, artifact: str) -> Record | None:
    """Return the record of an evaluation, or of the one of this run; None for other artifacts."""
    record = graph.require(artifact)
    if facts_of(record["rule"]).kind == "evaluate":
        return record
    users = (graph.require(edge.user) for edge in graph.down(artifact) if edge.name == "run")
    return next((user for user in users if facts_of(user["rule"]).kind == "evaluate"), None)


def _evaluated(graph: Graph, artifact: str) -> dict[str, float]:
    """Return the artifact's metrics; for a run those of its evaluation, too, as BM25 records only what it counted."""
    records = (graph.require(artifact), _evaluation(graph, artifact))
    return {metric["name"]: metric["value"] for record in records if record for metric in record["metrics"]}


def _metrics(a: dict[str, float], b: dict[str, float]) -> list[str]:
    if not a and not b:
        return []
    names = [*a, *(name for name in b if name not in a)]
    width = max(len(name) for name in names)
    lines = ["", f"{'metrics:':<{width + 2}}  {'A':>12}  {'B':>12}  {'B - A':>12}"]
    for name in names:
        left, right = a.get(name), b.get(name)
        change = f"{right - left:+.6f}" if left is not None and right is not None else ABSENT
        cells = (ABSENT if value is None else f"{value:.6f}" for value in (left, right))
        lines.append(f"  {name:<{width}}  {'  '.join(f'{cell:>12}' for cell in cells)}  {change:>12}")
    return lines


def per_query_file(graph: Graph, artifact: str) -> str | None:
    """Return the per-query metrics of an evaluation, or of the one that used this run; None for other artifacts."""
    evaluation = _evaluation(graph, artifact)
    return evaluation["outputs"]["per_query"] if evaluation else None


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
        again = f"evaluate by it: --config measures=[{metric}]"
        step = again if is_measure(metric) else nearest(metric, numbers.columns)
        raise ArtifactError(f"{path}: {metric}", "is no per-query metric", step)
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
    of_a, of_b = (_judged(graph, str(file)) for file in files)
    lines += [f"  A is of {of_a}, B of {of_b}: what has one id may be two queries"] if of_a != of_b else []
    for title, rows in (("gains", moves.head(count)), ("losses", moves.iloc[::-1].head(count))):
        sign = 1 if title == "gains" else -1
        rows = rows[rows["change"] * sign > 0]
        lines += [f"  biggest {title}:"] if len(rows) else []
        for query, a, b, change in rows.itertuples(index=False):
            lines.append(
                f"    {signed(change)}  {fixed(a)} -> {fixed(b)}  {query}  {texts.get(query, '')[:80]}".rstrip()
            )
    return lines


def _judged(graph: Graph, per_query: str) -> str:
    """Name the collection and split of an evaluation."""
    params = graph.require(per_query)["spec"]["params"]
    return f"{params['collection']}/{params['split']}"


def _query_texts(graph: Graph, per_query: str) -> dict[str, str]:
    """Map query ids to texts of the collection that the evaluation read."""
    import pandas as pd

    for entry in graph.require(per_query)["inputs"]:
        path = queries_file(Path(entry["path"]).parent)
        if entry["name"] == "collection" and path.exists():
            frame = pd.read_parquet(path, columns=["id", "text"])
            return dict(zip(frame["id"], frame["text"], strict=True))
    return {}
