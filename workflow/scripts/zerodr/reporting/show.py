"""Print the results of a finished main job: the table, and where to look next."""

import json
from pathlib import Path

from zerodr.errors import ArtifactError

NEXT = """
Page       results/beir/{name}.html  to sort, filter and open; query by query: results/beir/{name}/queries/
Files      results/beir/{name}.tsv  .md  .tex  .svg  .png; in results/beir/{name}/: tests, published numbers, holes
Logs       results/logs/<rule>/   time and memory by job: results/benchmarks/<rule>/
Lineage    .venv/bin/python -m zerodr lineage results/beir/{name}.tsv
MLflow     make mlflow            then open {link}
Report     make report            then open results/report.html
"""


def show(selection: str = "all") -> str:
    """Return the table with the paths of plots, logs, lineage and the command that opens MLflow."""
    table = Path(f"results/beir/{selection}.md")
    if not table.exists():
        raise ArtifactError(table, "is missing", "run: make mini")
    return f"\n{table.read_text().rstrip()}\n{NEXT.format(name=selection, link=_published())}"


def _published() -> str:
    """Return the address of the methods in MLflow, as the publisher wrote it."""
    path = Path("results/lineage/link.json")
    return json.loads(path.read_text()) if path.exists() else "http://127.0.0.1:5000"
