"""Compare gains by known items with gains by judgements, over methods and targets.

Reads what `zerodr adapt FOLDER --proxies` compared in folders with judgements
(`results/adapted/*/answer/comparison.tsv`). A gain is a method's nDCG@10 minus the baseline's: by judgements, and by
the mean over kinds of known items (titles, sentences, questions). Prints a Markdown table; Kendall's tau of the two
gains and how often their signs agree, over all pairs of method and target, and without methods that `--but` names.

Run from the project's root: python benchmarks/proxies.py [--results results] [--baseline all-minilm-l6-v2]
[--but bm25-flat+bm25s]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from train import say

GAINS = ["judged", "proxy"]


def gains(file: Path, baseline: str) -> Any:
    """Gains of a comparison's methods by judgements and by known items, a row a method."""
    import pandas as pd

    table = pd.read_csv(file, sep="\t")
    kinds = table[table["kind"] != "mean"].assign(by=lambda rows: rows["proxy"].map({True: "proxy", False: "judged"}))
    values = kinds.groupby(["method", "by"])["value"].mean().unstack("by")
    if baseline not in values.index or not set(GAINS) <= set(values.columns):
        return None
    found = (values[GAINS] - values.loc[baseline, GAINS]).drop(baseline)
    return found.assign(target=file.parents[1].name.removesuffix("-notes")).reset_index()


def signs(rows: Any) -> str:
    """Count how often both gains have the same sign."""
    return f"the same sign {int((rows['judged'] * rows['proxy'] > 0).sum())} of {len(rows)} times"


def tau(rows: Any) -> str:
    """Kendall's tau of both gains."""
    from scipy.stats import kendalltau

    return f"Kendall's tau {kendalltau(rows['judged'], rows['proxy']).statistic:.2f}"


def main() -> None:
    """Print the table and what it says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--baseline", default="all-minilm-l6-v2")
    parser.add_argument("--but", default="bm25-flat+bm25s")
    chosen = parser.parse_args()
    import pandas as pd

    files = sorted(chosen.results.glob("adapted/*/answer/comparison.tsv"))
    found = [rows for rows in (gains(file, chosen.baseline) for file in files) if rows is not None]
    if not found:
        raise SystemExit(
            f"{chosen.results}/adapted has no comparison with judgements, known items and {chosen.baseline}: "
            "run `zerodr adapt FOLDER --proxies` on a folder with judgements"
        )
    rows = pd.concat(found)
    say("| target | method | by judgements | by known items |\n|---|---|---|---|")
    for row in rows.itertuples():
        say(f"| {row.target} | {row.method} | {row.judged:+.4f} | {row.proxy:+.4f} |")
    but = chosen.but.split(",")
    for name, some in (("all", rows), (f"without {', '.join(but)}", rows[~rows["method"].isin(but)])):
        say(f"{name}: {tau(some)}, {signs(some)}")
    for method, of in rows.groupby("method"):
        say(f"{method}: {signs(of)}")


if __name__ == "__main__":
    main()
