"""Print the results of a finished main job: the table, and where to look next."""

from pathlib import Path

from zerodr.errors import ArtifactError

NEXT = """
Page       results/beir/{name}.html  to sort, filter and open; query by query: results/beir/{name}/queries/
Files      results/beir/{name}.tsv  .md  .tex  .svg  .png; in results/beir/{name}/: tests, published numbers, holes
Logs       results/logs/<rule>/   time and memory by job: results/benchmarks/<rule>/
Lineage    .venv/bin/python -m zerodr lineage results/beir/{name}.tsv
MLflow     make mlflow            then open http://127.0.0.1:5000
Report     make report            then open results/report.html
"""


def show(selection: str = "all") -> str:
    """Return the table with the paths of plots, logs, lineage and the command that opens MLflow."""
    table = Path(f"results/beir/{selection}.md")
    if not table.exists():
        raise ArtifactError(table, "is missing", "run: make mini")
    return f"\n{table.read_text().rstrip()}\n{NEXT.format(name=selection)}"
