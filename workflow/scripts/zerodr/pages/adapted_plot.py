"""Draw candidates with intervals, a panel a kind of queries, as SVG inside a page: colours follow the page."""

from html import escape

import pandas as pd

NAMES, PANEL, GAP, ROW, TOP, BOTTOM = 300, 180, 24, 26, 34, 26  # pixels
MEAN = "mean"


def draw(table: pd.DataFrame, labels: dict[str, str], adapted: set[str]) -> str:
    """Draw means and 95 % intervals.

    Args:
        table: columns kind, proxy, method, queries, value, low, high.
        labels: printed name of each method, in the order of the rows.
        adapted: methods that learned from the documents.

    Returns:
        an `svg` element; it uses the page's variables --ink, --soft, --line, --new and --old.
    """
    kinds = list(dict.fromkeys(table["kind"]))
    width, height = NAMES + len(kinds) * (PANEL + GAP), TOP + len(labels) * ROW + BOTTOM
    marks = [text(NAMES - 12, TOP + (n + 0.5) * ROW + 5, label, "end") for n, label in enumerate(labels.values())]
    for number, kind in enumerate(kinds):
        rows = table[table["kind"] == kind].set_index("method")
        marks += panel(rows, list(labels), adapted, NAMES + number * (PANEL + GAP), height, kind)
    title = "nDCG@10 of each candidate with 95 % intervals"
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    style = 'font-family="system-ui, sans-serif" font-size="13" fill="var(--ink)"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" {size} {style}>{"".join(marks)}</svg>'
    )


def panel(rows: pd.DataFrame, names: list[str], adapted: set[str], left: float, height: int, kind: str) -> list[str]:
    """Draw one kind of queries: a heading, a scale, and for each method an interval, a dot and its value."""
    low, high = float(rows["low"].min()), float(rows["high"].max())
    room = max(high - low, 0.02)
    low, high = low - 0.05 * room, high + 0.05 * room

    def at(value: float) -> float:
        return left + (value - low) / (high - low) * PANEL

    proxy = bool(rows["proxy"].iloc[0])
    name = "mean" if kind == MEAN else kind
    bottom = height - BOTTOM
    marks = [text(left, 18, f"{name}{' (proxy)' if proxy else ''}", "start", weight="600")]
    marks.append(
        f'<rect x="{left}" y="{TOP}" width="{PANEL}" height="{bottom - TOP}" fill="none" stroke="var(--line)"/>'
    )
    for value in (low + 0.1 * room, high - 0.1 * room):
        marks.append(text(at(value), height - 8, f"{value:.2f}", "middle", "var(--soft)"))
        marks.append(f'<path d="M{at(value):.1f} {bottom}v4" stroke="var(--soft)"/>')
    for number, method in enumerate(names):
        row, y = rows.loc[method], TOP + (number + 0.5) * ROW
        colour = "var(--new)" if method in adapted else "var(--old)"
        marks.append(f'<path d="M{at(row.low):.1f} {y}H{at(row.high):.1f}" stroke="{colour}" stroke-width="2"/>')
        shape = f'<circle cx="{at(row.value):.1f}" cy="{y}" r="4.5" fill="{colour}"/>'
        if method in adapted:
            x = at(row.value)
            shape = f'<path d="M{x - 5:.1f} {y}l5 -5 5 5 -5 5z" fill="{colour}"/>'
        marks.append(f"<g>{shape}<title>{row.value:.4f} [{row.low:.4f}, {row.high:.4f}]</title></g>")
    return marks


def text(x: float, y: float, words: str, anchor: str, colour: str = "var(--ink)", weight: str = "400") -> str:
    """Write one line of text."""
    style = f'text-anchor="{anchor}" fill="{colour}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>'
