"""Draw the measured effects: `python docs/pictures/results.py` reads `benchmarks/*.md`, writes a figure a table.

A point is a difference with its 95 % interval, in nDCG@10 or a figure's own unit, as the benchmarks' tables have it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from svg import GREY, line, picture, text

HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parents[1] / "benchmarks"
ERROR = re.compile(r"([+-]?\.\d+) \((\.\d+)\)")  # a difference and its standard error
INTERVAL = re.compile(r"([+-]?\.\d+) \[([+-]?\.\d+), ([+-]?\.\d+)\]")
COLOURS = ["#2a9d8f", "#d97706", "#a371c6"]
POINTS = [*COLOURS, "#e05263", "#4c7dd0", "#8a8d3b"]
WIDTH, LEFT, ROW = 760, 190, 22


@dataclass(frozen=True)
class Effect:
    """A difference with its interval."""

    target: str
    series: str
    value: float
    low: float
    high: float


def cells(name: str, heading: str) -> list[list[str]]:
    """Rows of the table whose header line contains `heading`, the header first, in `benchmarks/<name>.md`."""
    lines = (BENCHMARKS / f"{name}.md").read_text(encoding="utf-8").splitlines()
    start = next(number for number, row in enumerate(lines) if row.startswith("|") and heading in row)
    rows = []
    for row in lines[start:]:
        if not row.startswith("|"):
            break
        rows.append([cell.strip() for cell in row.strip("|").split("|")])
    return [rows[0], *rows[2:]]


def effect(target: str, series: str, cell: str) -> Effect:
    """The difference that a cell such as `+.0823 [+.0703, +.0943]` shows."""
    found = INTERVAL.search(cell)
    if not found:
        raise ValueError(f"{target}, {series}: no `difference [low, high]` in {cell!r}")
    return Effect(target, series, *map(float, found.groups()))


def with_error(target: str, series: str, cell: str) -> Effect:
    """The difference that a cell such as `+.0582 (.0108)` shows, with 1.96 standard errors on each side."""
    found = ERROR.search(cell)
    if not found:
        raise ValueError(f"{target}, {series}: no `difference (standard error)` in {cell!r}")
    value, error = map(float, found.groups())
    return Effect(target, series, value, value - 1.96 * error, value + 1.96 * error)


def coco_dr() -> list[Effect]:
    """COCO on texts of targets against as many steps on the source alone, three seeds."""
    _, *rows = cells("coco-dr", "COCO on the source alone")
    return [effect(row[0], "COCO", row[2]) for row in rows]


def idro() -> list[Effect]:
    """Weights of clusters against none, three seeds: iDRO, and its controls."""
    header, *rows = cells("coco-dr", "iDRO, temperature .3, minus `erm`")
    arms = {header[at].partition(",")[0].strip("`"): at for at in (2, 3, 4)}
    return [effect(row[0], arm, row[at]) for row in rows for arm, at in arms.items()]


def idro_clusters() -> list[Effect]:
    """Weights of clusters against none by regime: the loss of the source's worst cluster."""
    _, *rows = cells("coco-dr", "| regime |")
    return [effect(row[0], row[1], row[3]) for row in rows]


def berm() -> list[Effect]:
    """BERM's losses at three weights of R2 against none, at equal steps, three seeds."""
    weights = {
        "R2 at 1": cells("berm", "likeness"),
        "R2 at .3": cells("berm", "R2 at .3, minus it"),
        "R2 at .1, 3,000 steps": cells("berm", "R2 at .1, minus it"),
    }
    return [
        effect(row[0], name, next(cell for cell in row if "[" in cell))
        for name, (_, *rows) in weights.items()
        for row in rows
    ]


def berm_weights() -> list[Effect]:
    """BERM's losses at three weights of R2 against none, one seed."""
    header, *rows = cells("berm", "| R2 at 1 |")
    return [effect(row[0], header[at], row[at]) for row in rows for at in (1, 2, 3)]


def ddr() -> list[Effect]:
    """The target's language model after 200 and 400 steps against none."""
    header, *rows = cells("ddr", "| | NFCorpus | ArguAna | SciFact | FiQA-13k | MLQuestions | SQuADShifts reddit |")
    lines = (BENCHMARKS / "ddr.md").read_text(encoding="utf-8").splitlines()
    rows = [[c.strip() for c in row.strip("|").split("|")] for row in lines if re.match(r"\| [24]00 steps \|", row)]
    return [effect(target, row[0], cell) for row in rows for target, cell in zip(header[1:], row[1:], strict=True)]


def ddr_coco() -> list[Effect]:
    """COCO on the target's and on the source's texts, as the domain module of DDR, against no steps."""
    _, *rows = cells("ddr", "| target | 0 steps |")
    arms = {"target's texts": 3, "source's texts": 5}
    return [effect(row[0], arm, row[at]) for row in rows for arm, at in arms.items()]


def ddr_coco_steps() -> list[Effect]:
    """COCO on the target's texts for 200 and 400 steps, as the domain module of DDR, against no steps, two seeds."""
    _, *rows = cells("ddr", "| target | seed 13: 200 steps |")
    arms = {"200 steps": 3, "400 steps": 5}
    return [effect(row[0], arm, row[at]) for row in rows for arm, at in arms.items()]


def modir() -> list[Effect]:
    """Adversaries with and without a queue against none, three seeds."""
    _, *rows = cells("modir", "queue, minus it")
    return [effect(row[0], name, row[at]) for row in rows for at, name in ((2, "queue"), (4, "no queue"))]


def moma() -> list[Effect]:
    """The target plugged in against left out, with the same weights."""
    said = (BENCHMARKS / "moma.md").read_text(encoding="utf-8").replace("\n", " ")
    pattern = r"([+-]\.\d+ \[[^\]]+\]) on (MLQuestions|FiQA-13k|SciFact|NFCorpus)"
    return [effect(target, "target plugged in", cell) for cell, target in re.findall(pattern, said)]


def moma_minilm() -> list[Effect]:
    """MiniLM with learned attention to documents of the target against MiniLM alone."""
    _, *rows = cells("moma", "| target | MiniLM | moma-minilm |")
    return [effect(row[0], "moma-minilm", row[3]) for row in rows if row[3]]


def zero() -> list[Effect]:
    """Queries that read documents of the target, and the plain fusion, against MiniLM, on English targets."""
    _, *rows = cells("adaptation", "zero, minus MiniLM")
    arms = {"zero": 4, "BM25 + MiniLM": 6}
    shown = [row for row in rows if row[2] and "CMRC" not in row[0]]  # its gains are many times the others'
    return [with_error(row[0], arm, row[at]) for row in shown for arm, at in arms.items()]


def adapt_query() -> list[Effect]:
    """Queries that learned from the fusion against MiniLM, three seeds."""
    _, *rows = cells("adaptation", "adapt-query, minus it")
    return [effect(row[0], "adapt-query", row[2]) for row in rows]


def learning() -> list[Effect]:
    """ANCE's own negatives against BM25's, at equal steps."""
    header, *rows = cells("learning", "| | SQuAD dev | SciFact | NFCorpus | ArguAna |")
    lines = (BENCHMARKS / "learning.md").read_text(encoding="utf-8").splitlines()
    row = next(row for row in lines if row.startswith("| ANCE - DPR at equal steps"))
    values = [cell.strip() for cell in row.strip("|").split("|")][1:]
    return [effect(target, "own negatives", cell) for target, cell in zip(header[1:], values, strict=True)]


def genq() -> list[Effect]:
    """Questions that a language model wrote for a target's documents, two ways to learn from them."""
    header, *rows = cells("adaptation", "GenQ, minus MiniLM")
    series = [(column, name.partition(",")[0]) for column, name in enumerate(header) if "minus MiniLM" in name]
    return [effect(row[0], name, row[column]) for row in rows for column, name in series]


def proxies() -> list[tuple[str, float, float]]:
    """(method, gain by known items, gain by judgements) of each pair of method and English target."""
    lines = (BENCHMARKS / "proxies.md").read_text(encoding="utf-8").splitlines()
    pattern = r"\| (?!CMRC)([^|]+) \| ([^|]+) \| ([+-]?\.\d+) \| ([+-]?\.\d+) \|"
    found = [match for row in lines if (match := re.fullmatch(pattern, row))]
    return [(match[2], float(match[4]), float(match[3])) for match in found]


def scatter(title: str, points: list[tuple[str, float, float]]) -> str:
    """Gains by known items from left to right, by judgements from bottom to top."""
    reach = max(max(abs(x), abs(y)) for _, x, y in points) * 1.08
    left, top, size = 80, 44, 460
    scale, step = size / (2 * reach), 0.05

    def at(x: float, y: float) -> tuple[float, float]:
        return left + (x + reach) * scale, top + (reach - y) * scale

    parts = [text(left, 22, title, size=14, font_weight="600")]
    for number in range(-int(reach / step), int(reach / step) + 1):
        value, width = number * step, 0.4 if number else 2
        parts.append(line([at(value, -reach), at(value, reach)], width=width))
        parts.append(line([at(-reach, value), at(reach, value)], width=width))
        said = f"{value:+.2f}" if number else "0"
        parts.append(text(at(value, 0)[0], top + size + 18, said, anchor="middle"))
        parts.append(text(left - 8, at(0, value)[1] + 4, said, anchor="end"))
    methods = list(dict.fromkeys(method for method, _, _ in points))
    for number, method in enumerate(methods):
        y = top + 20 + 24 * number
        parts.append(f'<circle cx="{left + size + 24}" cy="{y}" r="5" fill="{POINTS[number]}"/>')
        parts.append(text(left + size + 36, y + 4, method))
    for method, x, y in points:
        cx, cy = at(x, y)
        parts.append(f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="6" fill="{POINTS[methods.index(method)]}"/>')
    parts.append(text(left + size / 2, top + size + 38, "gain over MiniLM by known items, nDCG@10", anchor="middle"))
    parts.append(text(left, top - 6, "gain by judgements", size=12))
    told = "; ".join(f"{method}: {x:+.3f} by known items, {y:+.3f} by judgements" for method, x, y in points)
    return picture(WIDTH, top + size + 50, title, told, parts)


def draw(title: str, effects: list[Effect], unit: str) -> str:
    """Targets from top to bottom, a point and an interval for each series."""
    targets, series = list(dict.fromkeys(e.target for e in effects)), list(dict.fromkeys(e.series for e in effects))
    reach = max(max(abs(e.low), abs(e.high)) for e in effects) * 1.08
    step = next(s for s in (0.005, 0.01, 0.02, 0.05, 0.1) if reach / s < 6)
    top, right = 64 if len(series) > 1 else 44, WIDTH - 24
    bottom = top + len(targets) * (ROW * len(series) + 10)
    scale = (right - LEFT) / (2 * reach)

    def at(value: float) -> float:
        return LEFT + (value + reach) * scale

    parts = [text(LEFT, 22, title, size=14, font_weight="600")]
    for number in range(-int(reach / step), int(reach / step) + 1):
        x = at(number * step)
        parts.append(line([(x, top - 6), (x, bottom)], width=2 if number == 0 else 0.4))
        parts.append(text(x, bottom + 18, f"{number * step:+.3f}".rstrip("0") if number else "0", anchor="middle"))
    parts.append(text((LEFT + right) / 2, bottom + 38, f"difference in {unit}, 95 % interval", anchor="middle"))
    for number, name in enumerate(series) if len(series) > 1 else ():
        x = LEFT + number * 170
        parts.append(f'<circle cx="{x + 5:g}" cy="42" r="5" fill="{COLOURS[number]}"/>')
        parts.append(text(x + 16, 46, name))
    for row, target in enumerate(targets):
        y = top + row * (ROW * len(series) + 10)
        parts.append(text(LEFT - 12, y + ROW * len(series) / 2 + 4, target, size=13, anchor="end"))
        for one in (e for e in effects if e.target == target):
            order = series.index(one.series)
            middle, colour = y + ROW * (order + 0.5), COLOURS[order]
            whisker = line([(at(one.low), middle), (at(one.high), middle)], width=3)
            parts.append(whisker.replace(GREY, colour))
            parts.append(f'<circle cx="{at(one.value):g}" cy="{middle:g}" r="6" fill="{colour}"/>')
    told = "; ".join(f"{e.target}, {e.series}: {e.value:+.4f} [{e.low:+.4f}, {e.high:+.4f}]" for e in effects)
    return picture(WIDTH, bottom + 50, title, told, parts)


FIGURES = {
    "learning": ("ANCE's own negatives against BM25's, at equal steps", learning),
    "coco-dr": ("COCO on the targets' texts against COCO on the source alone, three seeds", coco_dr),
    "idro": ("Weights of query clusters against none, three seeds", idro),
    "idro-clusters": ("Weights of query clusters against none: the worst cluster's loss", idro_clusters),
    "berm": ("BERM's losses against none, at equal steps, three seeds", berm),
    "berm-weights": ("BERM's losses against none by the weight of R2, one seed", berm_weights),
    "modir": ("A domain adversary of equal strength against none, three seeds", modir),
    "ddr-coco": ("DDR whose domain module learns by COCO: 400 steps against none", ddr_coco),
    "ddr-coco-steps": ("DDR by COCO on the target: 200 and 400 steps, seeds 14 and 15", ddr_coco_steps),
    "ddr": ("Steps of the target's language model against none", ddr),
    "moma": ("The target plugged into the memory, same weights", moma),
    "zero": ("Queries that read documents (zero), and plain fusion, against MiniLM", zero),
    "adapt-query": ("MiniLM whose queries learned from the fusion, against MiniLM, three seeds", adapt_query),
    "genq": ("MiniLM that learned from written questions, against MiniLM, one seed", genq),
    "moma-minilm": ("MiniLM that reads the target's documents, against MiniLM", moma_minilm),
}

UNITS = {"idro-clusters": "nats (lower is better)"}  # of figures whose unit is not nDCG@10


def figure(name: str) -> str:
    """The figure of that name, as SVG."""
    title, effects = FIGURES[name]
    return draw(title, effects(), UNITS.get(name, "nDCG@10"))


SCATTER = "Does a proxy predict the gain? A point is a method on a target"

if __name__ == "__main__":
    (HERE / "proxies.svg").write_text(scatter(SCATTER, proxies()), encoding="utf-8")
    for name in FIGURES:
        (HERE / f"{name}.svg").write_text(figure(name), encoding="utf-8")
