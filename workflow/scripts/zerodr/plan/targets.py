"""List what users ask Snakemake for, and find the nearest target to a mistyped one (Snakemake itself names none)."""

import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import NamedTuple

from zerodr.config.recipes import INIT
from zerodr.errors import nearest
from zerodr.plan import paths
from zerodr.plan.chains import SCOPE
from zerodr.plan.plan import Plan

IN_BRACES = re.compile(r"\{(\w+)\}")
ALL_COLUMNS = re.compile(r"/all(?=[./])")  # the name of a table of all columns, in a path
PROFILE = "config/profiles/mini"
LIKE = 0.6
TRIES = 3
WIDTH = 118


class Target(NamedTuple):
    """A target, or a family of them with names of `names` in braces in its path."""

    path: str
    what: str


_WHERE = ("{method}", "{collection}", "{protocol}")
_JUDGED = ("{method}", "{judged}", "{protocol}")
TARGETS = [
    Target("all", "all that is configured, with lineage"),
    Target(paths.beir("{selection}.tsv"), "the main table"),
    Target(paths.beir("{selection}.html"), "the same as a page to sort, filter and open"),
    Target(paths.beir("{selection}.md"), "as Markdown"),
    Target(paths.beir("{selection}.tex"), "for LaTeX"),
    Target(paths.beir("{selection}.svg"), "its figure"),
    Target(paths.beir("{selection}.png"), "the same as pixels"),
    Target(paths.compared("{selection}", "per_query.parquet"), "its metrics by query"),
    Target(paths.compared("{selection}", "published.tsv"), "comparison with published numbers"),
    Target(paths.compared("{selection}", "significance.tsv"), "tests against the baseline"),
    Target(paths.compared("{selection}", "holes.tsv"), "unjudged documents"),
    Target(paths.query_page("{judged}", "{protocol}", "{method}", "{method}"), "two methods, query by query"),
    Target("results/{paper}/all.html", "all tables and figures of a paper"),
    Target("results/{paper}/published.html", "all printed values of a paper, next to ours"),
    Target("results/{paper}/published.tsv", "the same as numbers"),
    Target("results/{paper}/{item}.html", "one table of a paper"),
    Target("results/{paper}/{item}.svg", "its figure"),
    Target("results/{paper}/{item}.tsv", "its numbers"),
    Target("results/{paper}/{item}.published.tsv", "values that the paper prints next to ours"),
    Target(paths.lineage("published.json"), "lineage in MLflow"),
    Target(paths.beir("{method}.tsv"), "one row of the table"),
    Target(paths.beir("{method}.md"), "the same as Markdown"),
    Target(paths.run(*_WHERE), "one ranking"),
    Target(paths.summary(*_JUDGED), "all metrics of one ranking"),
    Target(paths.per_query(*_JUDGED), "the same by query"),
    Target(paths.collection("{collection}"), "a downloaded and normalised collection"),
    Target(paths.statistics("{collection}"), "its statistics"),
    Target(paths.model("{trained}", SCOPE, "{stage}"), "a model after one stage of its chain"),
    Target(paths.mined("{trained}", SCOPE, "{stage}"), "what a stage learns from"),
    Target(paths.exported("{trained}", SCOPE), "a trained model for sentence-transformers"),
    Target(paths.exported("{adapted}", "{target}"), "the same of a model made for one target"),
    Target(paths.adapted_page("{collection}"), "candidates compared, the best exported"),
    Target(paths.adapted_model("{collection}"), "the best of them"),
]


class Placeholder(NamedTuple):
    """Names that a paper's targets have in braces.

    Attributes:
        names: those of a plan.
        text: how they are described; empty: they are listed.
    """

    names: Callable[[Plan], list[str]]
    text: str = ""


PLACEHOLDERS: dict[str, Placeholder] = {}


def add_targets(*targets: Target, **placeholders: Placeholder) -> None:
    """Add a paper's targets, and the placeholders in them."""
    TARGETS.extend(targets)
    PLACEHOLDERS.update(placeholders)


def names(plan: Plan) -> dict[str, list[str]]:
    """Names for the placeholders: methods that rank collections, `judged` collections that can be evaluated."""
    rows, methods = plan.bench.collections.values(), plan.bench.methods.items()
    trained = [name for name, method in methods if method.kind == "trained" and method.ranks]
    adapted = [name for name in trained if plan.chains.is_adapted(name)]
    return {
        "selection": [plan.selection],
        "method": sorted(name for name, method in methods if method.ranks),
        "paper": sorted(plan.bench.papers),
        "item": sorted({name for paper in plan.bench.papers.values() for name in paper.items}),
        "trained": sorted(set(trained) - set(adapted)),
        "adapted": sorted(adapted),
        "stage": sorted({INIT} | {stage for name in trained for stage in plan.chains.trained(name).chain}),
        "target": sorted({row.column for row in rows}),
        "protocol": sorted(plan.bench.protocols),
        "collection": sorted(row.name for row in rows),
        "judged": sorted(row.name for row in rows if row.evaluation_split),
        **{kind: sorted(placeholder.names(plan)) for kind, placeholder in PLACEHOLDERS.items()},
    }


def is_target(path: str, plan: Plan) -> bool:
    """Whether a path is one that users ask for."""
    segments, known = path.split("/"), names(plan)
    return any(
        all(segment in choices for segment, choices in zip(segments, _choices(target, known), strict=True))
        for target in _alike(segments)
    )


def other_names(words: Iterable[str], plan: Plan) -> dict[str, str]:
    """Return the path of each table among the words of a command that `in_order` gives another one."""
    return {word: path for word in words if (path := in_order(word, plan)) != word}


def idle_variants(words: Iterable[str], outputs: Iterable[str], plan: Plan) -> str:
    """Name the variants of `set` that a run makes nothing of, with the row to ask for; empty where there are none.

    Args:
        words: targets of the run.
        outputs: files of its jobs, finished or not.
    """
    changed = [variant for variants in plan.bench.overridden.values() for variant in variants]
    files = list(outputs) if changed else []
    idle = [name for name in changed if not any(re.search(rf"/{re.escape(name)}[/@.]", path) for path in files)]
    if not idle:
        return ""
    row = next((word for word in words if is_target(word, plan) and word.endswith(".tsv")), "results/beir/x.tsv")
    return f"set: nothing here reads {', '.join(idle)}: its row is {Path(row).with_name(f'{idle[0]}.tsv')}"


def in_order(path: str, plan: Plan) -> str:
    """Return the path of a table whose collections are named in another order, or all of a long name; else `path`."""
    for target in TARGETS:
        start, selection, end = target.path.partition("{selection}")
        if selection and path.startswith(start) and path.endswith(end):
            named = path[len(start) : len(path) - len(end)].split("+")
            if sorted(named) == sorted(plan.bench.selected):
                return f"{start}{plan.selection}{end}"
    return path


def nearest_target(path: str, plan: Plan) -> str:
    """A next step for a `path` that is no target."""
    chosen = in_order(ALL_COLUMNS.sub(f"/{plan.selection}", path), plan)
    if chosen != path and is_target(chosen, plan):
        return f"with these collections it is {chosen}"
    if others := _unselected(path, plan):
        return f"these collections are not chosen: add --config collections={','.join(others)}"
    segments, known = path.split("/"), names(plan)
    known["selection"] = [*known["selection"], *plan.bench.collections]
    alike: set[str] = set()
    for target in _alike(segments):
        close = [
            get_close_matches(segment, choices, TRIES, LIKE)
            for segment, choices in zip(segments, _choices(target, known), strict=True)
        ]
        alike |= {"/".join(words) for words in product(*close)}
    step = nearest(path, alike) if alike else "see: zerodr targets"
    table = Path(paths.beir(f"{plan.selection}.tsv"))
    if (Path(path).parent, Path(path).suffix) == (table.parent, ".tsv") and f"{table.parent}/" not in step:
        return f"a table is named by its columns, here {table}; methods= chooses its rows"
    return step


def _unselected(path: str, plan: Plan) -> list[str]:
    """List the collections, joined by `+` in the path of a table, that are known and not those of this plan."""
    for target in TARGETS:
        start, selection, end = target.path.partition("{selection}")
        named = path.removeprefix(start).removesuffix(end).split("+")
        known = {*named} <= plan.bench.collections.keys()
        if selection and known and path == f"{start}{'+'.join(named)}{end}":
            return named
    return []


def _alike(segments: list[str]) -> Iterator[Target]:
    """Targets with as many segments."""
    return (target for target in TARGETS if target.path.count("/") == len(segments) - 1)


def _choices(target: Target, known: dict[str, list[str]]) -> list[list[str]]:
    """Choices for each segment of a target's path."""
    return [_expansions(segment, known) for segment in target.path.split("/")]


def _expansions(segment: str, known: dict[str, list[str]]) -> list[str]:
    braces = IN_BRACES.search(segment)
    return [segment.replace(braces.group(), name) for name in known[braces.group(1)]] if braces else [segment]


def render(plan: Plan) -> str:
    """All targets, and the names for their placeholders."""
    width = max(len(target.path) for target in TARGETS)
    lines = [f"{target.path:<{width}}  {target.what}" for target in TARGETS]
    known = names(plan)
    unjudged = [name for name in known["collection"] if name not in known["judged"]]
    lists = {f"{{{kind}}}": known[kind] for kind in ("selection", "method", "protocol", "judged", "paper", "item")}
    lists |= {
        "{collection}": ["{judged},", *unjudged],
        "{trained}": ["{method} of a recipe with kind: trained, but for {adapted}"],
        "{adapted}": known["adapted"] or ["none"],
        **{
            f"{{{kind}}}": [placeholder.text] if placeholder.text else known[kind] or ["none"]
            for kind, placeholder in PLACEHOLDERS.items()
        },
        "{stage}": ["init, or a stage of the recipe:", *known["stage"]],
        "{target}": ["{collection}, or cqadupstack for all its parts"],
    }
    for placeholder, chosen in lists.items():
        text = f"{placeholder}: {' '.join(chosen)}"
        lines += [
            "",
            *textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False),
        ]
    return "\n".join(lines)


def command(target: str, words: Iterable[str] = ()) -> str:
    """Write the command that makes a target, with words of `--config`.

    >>> command("results/beir/all.tsv", ["seed=14"])
    'snakemake --profile config/profiles/mini results/beir/all.tsv --config seed=14'
    """
    given = list(words)
    return shlex.join(["snakemake", "--profile", PROFILE, target, *(["--config", *given] if given else [])])
