"""Print the results of a finished main job: the table, and where to look next."""

from pathlib import Path

from zerodr.errors import ArtifactError

NEXT = """
Plots      results/beir/all.svg  results/beir/all.png
Tables     results/beir/all.html  all.tsv  all.md  all.tex  significance.tsv  published.tsv  holes.tsv
Queries    results/beir/all.per_query.parquet
Logs       results/logs/<rule>/   time and memory by job: results/benchmarks/<rule>/
Lineage    .venv/bin/python -m zerodr lineage results/beir/all.tsv
MLflow     make mlflow            then open http://127.0.0.1:5000
Report     make report            then open results/report.html
"""


def show(table: Path = Path("results/beir/all.md")) -> str:
    """Return the table with the paths of plots, logs, lineage and the command that opens MLflow."""
    if not table.exists():
        raise ArtifactError(table, "is missing", "run: make mini")
    return f"\n{table.read_text().rstrip()}\n{NEXT}"
