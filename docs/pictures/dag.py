"""Draw the DAG of rules, grouped by phase: `python docs/pictures/dag.py` writes `docs/pictures/dag.svg`.

Rules come from `workflow/rules/`. Arrows come from Snakemake's rule graph of the targets below: an arrow is drawn
only where the graph has an edge between rules of both phases.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from svg import MONO, box, line, picture, text

ROOT = Path(__file__).resolve().parents[2]
TARGETS = [
    *["all", "results/beir/kd.tsv", "results/exported/ddr-distill/scifact/manifest.json"],
    "results/evaluation/adapt-query/scifact/standard.summary.tsv",
    *[f"results/{paper}/all.html" for paper in ("coco-dr", "modir", "berm", "ddr", "moma")],
    "results/exported-memories/moma-t5ance/shared/memory-mesh/manifest.json",
    "results/adapted/scifact/index.html",
]
PHASES = [  # title, what it hands on, colour, files of workflow/rules with their headings
    (
        "Collections",
        "corpora, queries, judgements",
        "#2f6690",
        {"collections": "collections"},
    ),
    ("Words", "BM25 rankings", "#8a5a00", {"lexical": "BM25"}),
    (
        "Signals",
        "negatives, units, clusters, teacher's scores",
        "#7b4b94",
        {
            "mining": "mining",
            "papers/berm": "BERM",
            "papers/coco_dr": "COCO-DR",
        },
    ),
    (
        "Models",
        "one model a stage and target",
        "#a23b4a",
        {"training": "training", "papers/moma": "MoMA", "papers/ddr": "DDR"},
    ),
    (
        "Search",
        "rankings",
        "#1f7a7a",
        {
            "dense": "dense",
            "feedback": "feedback",
            "papers/moma_memory": "memories (MoMA)",
            "papers/moma_mixture": "mixtures (MoMA)",
        },
    ),
    ("Measures", "metrics with intervals", "#3a7d44", {"evaluation": "evaluation", "papers/modir": "MoDIR"}),
    (
        "Reports",
        "",
        "#555e6b",
        {"reporting": "tables", "items": "items of papers", "adaptation": "own folders"},
    ),
]
SKIPS = [("Models", "Measures", "models"), ("Words", "Measures", "rankings")]  # arrows at the right margin, inner first
LOOP = ("Search", "Signals", "next episode")  # the arrow at the left margin
ROW = 3  # names beside the heading of a phase with one file
WIDTH, LEFT, RIGHT, LABEL, LINE, PAD, GAP = 960, 48, 84, 128, 16, 12, 38


def rules() -> dict[str, list[str]]:
    """Names of rules by file of `workflow/rules`, without its ending."""
    pattern, folder = r"(?m)^\s*(?:rule|use rule \w+ as) (\w+)", ROOT / "workflow/rules"
    files = {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.smk"))}
    return {name: re.findall(pattern, path.read_text(encoding="utf-8")) for name, path in files.items()}


def edges() -> set[tuple[str, str]]:
    """Pairs of rules, maker and user, of all targets."""
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--profile",
        "config/profiles/mini",
        "--rulegraph",
        "dot",
        "--forceall",
    ]
    graph = subprocess.run(
        [*command, *TARGETS], cwd=ROOT, capture_output=True, text=True, check=True, encoding="utf-8"
    ).stdout
    names = dict(re.findall(r'(\d+)\[label = "([^"]+)"', graph))
    return {(names[a], names[b]) for a, b in re.findall(r"(\d+) -> (\d+)", graph)}


def draw(by_file: dict[str, list[str]], joined: set[tuple[str, str]]) -> str:
    """The picture.

    Raises:
        ValueError: a file without a phase, or an arrow that the graph does not have.
    """
    phase_of = {file: title for title, _, _, files in PHASES for file in files}
    if phase_of.keys() != by_file.keys():
        raise ValueError(f"give each of these a phase in PHASES: {sorted(phase_of.keys() ^ by_file.keys())}")
    phase_of_rule = {rule: phase_of[file] for file, names in by_file.items() for rule in names}
    known = {(phase_of_rule.get(a), phase_of_rule.get(b)) for a, b in joined}
    titles = [phase[0] for phase in PHASES]
    arrows = [*zip(titles, titles[1:], strict=False), *[(a, b) for a, b, _ in SKIPS], LOOP[:2]]
    if missing := [pair for pair in arrows if pair not in known]:
        raise ValueError(f"the rule graph has no such edges: {missing}")
    parts, top, spans = [], 8.0, {}
    for title, gives, colour, files in PHASES:
        single = len(files) == 1
        tallest = 0 if single else max(len(by_file[file]) for file in files)
        rows = -(-len(by_file[next(iter(files))]) // ROW) if single else 0
        height = PAD * 2 + (rows * LINE + 12 if single else 22 + tallest * LINE + 6)
        spans[title] = (top, top + height)
        parts.append(box(LEFT, top, WIDTH - LEFT - RIGHT, height, fill=colour, stroke=colour, opacity=0.1))
        parts.append(text(LEFT + PAD, top + PAD + 17, title, size=16, font_weight="700"))
        x = float(LEFT + LABEL)
        wide = (WIDTH - RIGHT - PAD - x + 10) / len(files) - 10
        for file, heading in files.items():
            parts.append(box(x, top + PAD, wide, height - 2 * PAD, fill=colour))
            parts.append(text(x + 10, top + PAD + 18, heading, size=13, fill="#fff", font_weight="600"))
            for number, name in enumerate(by_file[file]):
                if single:
                    at = x + 140 + number % ROW * 175, top + PAD + 18 + number // ROW * LINE
                else:
                    at = x + 10, top + PAD + 36 + number * LINE
                parts.append(text(*at, name, fill="#fff", font_family=MONO))
            x += wide + 10
        if gives:
            middle = LEFT + LABEL / 2
            parts.append(line([(middle, top + height), (middle, top + height + GAP - 2)], arrow=True))
            parts.append(text(middle + 12, top + height + GAP / 2 + 4, gives))
        top += height + GAP
    for number, (start, end, words) in enumerate(SKIPS):
        x, edge = WIDTH - RIGHT + 20 + number * 32, WIDTH - RIGHT
        y1, y2 = sum(spans[start]) / 2, sum(spans[end]) / 2 + (8 if number else -8)
        parts.append(line([(edge, y1), (x, y1), (x, y2), (edge + 2, y2)], arrow=True))
        middle = (y1 + y2) / 2
        parts.append(text(x + 14, middle, words, anchor="middle", transform=f"rotate(90 {x + 14:g} {middle:g})"))
    y1, y2 = sum(spans[LOOP[0]]) / 2, sum(spans[LOOP[1]]) / 2
    x = LEFT - 20
    parts.append(line([(LEFT, y1), (x, y1), (x, y2), (LEFT - 2, y2)], arrow=True, dashed=True))
    middle = (y1 + y2) / 2
    parts.append(text(x - 8, middle, LOOP[2], anchor="middle", transform=f"rotate(-90 {x - 8:g} {middle:g})"))
    count = sum(map(len, by_file.values()))
    description = "; ".join(
        f"{title}: {', '.join(r for f in files for r in by_file[f])}" for title, _, _, files in PHASES
    )
    return picture(WIDTH, top - GAP + 8, f"The {count} rules of zerodr by phase", description, parts)


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw(rules(), edges()), encoding="utf-8")
