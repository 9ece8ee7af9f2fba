"""Read the rows of the main table that are published numbers, without rankings of ours."""

import pandas as pd

from zerodr.artifacts.stage import Stage
from zerodr.config.settings import Reference
from zerodr.errors import ArtifactError, nearest
from zerodr.reporting.published import read_reference
from zerodr.reporting.settings import TableSettings

COLUMNS = ["model", "collection", "metric", "value"]


def published_rows(stage: Stage, settings: TableSettings) -> pd.DataFrame:
    """Read input `scores`, a file each, into COLUMNS: numbers of the table's complete collections and aggregates.

    Raises:
        ArtifactError: a file has no numbers of the system that a row names.
    """
    complete = [row for row in settings.collections if row.kind == "complete"]
    names = {name for row in complete for name in (row.name, row.aggregate) if name}
    rows = [pd.DataFrame(columns=COLUMNS)]
    for method in settings.methods:
        if method.scores is None:
            continue
        path = next(path for path in stage.paths("scores") if str(path).endswith(method.scores.file))
        numbers = read_reference(path, Reference(path=str(path), source=method.scores.source, tolerance=1))
        chosen = numbers[numbers["method"] == method.scores.row.lower()]
        if chosen.empty:
            problem = f"holds no numbers of {method.scores.row!r}, which method {method.name} shows"
            raise ArtifactError(path, problem, nearest(method.scores.row, set(numbers["method"])))
        chosen = chosen[chosen["collection"].isin(names)]
        rows.append(chosen.assign(model=method.name, value=chosen["reference"])[COLUMNS])
    return pd.concat(rows, ignore_index=True)


def without_empty(settings: TableSettings, scores: pd.DataFrame) -> tuple[TableSettings, list[str]]:
    """Leave out rows of published numbers that have none for this table's collections and measure; name them."""
    numbered = set(scores.loc[scores["metric"] == settings.metric, "model"])
    rows = tuple(method for method in settings.methods if method.scores is None or method.name in numbered)
    absent = [method.label for method in settings.methods if method not in rows]
    notes = [f"left out, because no number was published for a column: {', '.join(absent)}"] if absent else []
    return settings.model_copy(update={"methods": rows}), notes
