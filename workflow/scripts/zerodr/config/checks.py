"""Checks across the configuration: known and free names, combinations and files that make sense."""

import csv
import re
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from zerodr.config.bench import Bench
from zerodr.config.chains import check_chains, check_supervision
from zerodr.config.feedback import AttentionTraining, FeedbackSettings
from zerodr.config.files import known
from zerodr.config.measures import COLUMNS, require_depth
from zerodr.config.methods import (
    EncoderMethod,
    FeedbackMethod,
    FusionMethod,
    LexicalMethod,
    MixtureMethod,
    RunMethod,
    ScoreSettings,
    ScoresMethod,
    TrainedMethod,
)
from zerodr.config.registry import FORMATS, LANGUAGES
from zerodr.config.starts import PACKAGE
from zerodr.errors import ConfigError, nearest
from zerodr.papers import modules

NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
RESERVED = {"all"}  # results/beir/all.tsv


def check_bench(bench: Bench) -> None:
    """Raise ConfigError for the first unknown name or impossible combination."""
    _check_names("method", [component for name in bench.methods for component in name.partition("@")[0].split("+")])
    _check_names("protocol", bench.protocols)
    _check_runs(bench)
    _check_feedback(bench)
    _check_mixtures(bench)
    _check_collections(bench)
    _check_packages(bench)
    _check_imported(bench)
    check_chains(bench)
    _check_chosen(bench)
    for name, method in bench.methods.items():
        if method.read_under is not None:
            known(f"method {name}: read_under", method.read_under, bench.protocols)
    for name, protocol in bench.protocols.items():
        for collection in protocol.overrides:
            known(f"protocol {name}: override of collection", collection, bench.collections)


def _check_runs(bench: Bench) -> None:
    for name, method in bench.methods.items():
        for run in method.settings.runs if isinstance(method, FusionMethod) else ():
            other = known(f"method {name}: run", run, bench.methods)
            if other.kind == "fusion" or not other.ranks:
                raise ConfigError(
                    f"method {name}", f"fuses {run}, which has no ranking of its own", "name two plain methods"
                )


def _check_feedback(bench: Bench) -> None:
    """Feedback adds documents that some other method finds to queries of a bi-encoder."""
    for name, method in bench.methods.items():
        if isinstance(method, FeedbackMethod):
            where, model = f"method {name}: model", method.settings.model
            other = known(where, model, bench.methods)
            if not isinstance(other, EncoderMethod | TrainedMethod) or not other.ranks:
                raise ConfigError(where, f"{model} is no bi-encoder", "name a method of kind encoder or trained")
            where, memory = f"method {name}: memory", method.settings.memory
            other = known(where, memory, bench.methods)
            if isinstance(other, FeedbackMethod) or not other.ranks:
                raise ConfigError(where, f"{memory} finds no documents by itself", "name a method that ranks")
            if method.settings.attention is not None:
                _check_attention(bench, name, method.settings, method.settings.attention)


def _check_mixtures(bench: Bench) -> None:
    """Mixtures read vectors of a bi-encoder that ranks source, memories and targets alike."""
    for name, method in bench.methods.items():
        if isinstance(method, MixtureMethod):
            where, model = f"method {name}: model", method.settings.model
            if not isinstance(known(where, model, bench.methods), EncoderMethod):
                raise ConfigError(where, f"{model} is no bi-encoder that exists already", "name one of kind encoder")
            names = method.settings.memories
            for memory in names:
                known(f"method {name}: memories", memory, {"source", *bench.collections})
            if len(set(names)) < len(names):
                raise ConfigError(f"method {name}: memories", "names one twice", "name each once")
            _check_source_split(bench, name, method.settings.attention.source_split)


def _check_attention(bench: Bench, name: str, settings: FeedbackSettings, training: AttentionTraining) -> None:
    """Attention is learned on the source, so the model and what finds documents are the same there and on targets."""
    memory = bench.methods[settings.memory]
    finders = memory.settings.runs if isinstance(memory, FusionMethod) else (settings.memory,)
    for key, other in [("model", settings.model), *(("memory", finder) for finder in finders)]:
        if not isinstance(bench.methods[other], EncoderMethod | LexicalMethod):
            problem = f"{other} was trained for one target or ranks no source, so no attention can be learned with it"
            step = "name a method of kind encoder or lexical, or leave settings.attention out"
            raise ConfigError(f"method {name}: {key}", problem, step)
    _check_source_split(bench, name, training.source_split)


def _check_source_split(bench: Bench, name: str, split: str) -> None:
    source = bench.config.source or bench.scale.source
    splits = known("source", source, bench.collections).splits
    if split not in splits:
        problem = f"has no judgements for split {split!r}, there is nothing to learn from"
        raise ConfigError(f"method {name}: source {source}", problem, nearest(split, splits))


def _check_collections(bench: Bench) -> None:
    for name, row in bench.collections.items():
        known(f"collection {name}: format", row.format, FORMATS)
        known(f"collection {name}: language", row.language, LANGUAGES)


def _check_packages(bench: Bench) -> None:
    """Check that packages that ship a model are installed."""
    find = cache(find_spec)
    for name, method in bench.methods.items():
        models = [method.settings.model] if isinstance(method, EncoderMethod) else []
        models += [method.settings.encoder.init] if isinstance(method, TrainedMethod) else []
        for model in models:
            package = model.removeprefix(PACKAGE)
            if model.startswith(PACKAGE) and find(package.partition(".")[0]) is None:
                problem = f"starts from the package {package}, which is not installed"
                raise ConfigError(f"method {name}", problem, f"install {package}, or name another model")


def _check_imported(bench: Bench) -> None:
    """Imported runs in the table are of judged collections, and their files exist; other recipes stop nothing."""
    for name in _used(bench):
        method = bench.methods[name]
        files = list(method.settings.files) if isinstance(method, RunMethod) else []
        for collection in [one for one in files if one in bench.collections] or files[:1]:
            bench.run_file(name, collection)


def _used(bench: Bench) -> list[str]:
    """Methods of the table, and those that they combine."""
    names = [name for name in (*bench.rows, bench.config.baseline) if name in bench.methods]
    for name in names:
        method = bench.methods[name]
        runs = method.settings.runs if isinstance(method, FusionMethod) else ()
        names += [run for run in runs if run in bench.methods and run not in names]
    return list(dict.fromkeys(names))


def _check_names(what: str, names: Iterable[str]) -> None:
    for name in names:
        if not NAME.fullmatch(name) or name in RESERVED:
            raise ConfigError(
                f"{what} {name!r}",
                "can't be part of a path: expected small letters, digits, . _ - "
                f"and none of {', '.join(sorted(RESERVED))}",
                "rename it",
            )


def _check_chosen(bench: Bench) -> None:
    config, scale = bench.config, bench.scale
    _check_gpus(scale.gpus if config.gpus is None else config.gpus, config.nodes)
    known("protocol", config.protocol, bench.protocols)
    known("source", config.source or scale.source, bench.collections)
    known("baseline", config.baseline, bench.methods).check_ranks(f"baseline {config.baseline!r}")
    groups = {group: None for row in bench.collections.values() for group in (*row.groups, row.column)}
    collections = scale.collections if config.collections is None else config.collections
    named = [row for rows in scale.methods.values() for row in rows] if config.methods is None else config.methods
    methods = [*named, *(row for row in bench.rows if row not in named)]
    for name in collections:
        known("collection", name, bench.collections | groups)
    for name in config.gated:
        if known("gated collection", name, bench.collections).access != "gated":
            raise ConfigError(f"gated collection {name!r}", "is public", "leave it out of gated")
    for name in methods:
        known("method", name, bench.methods)
    for what, words in (("method", methods), ("collection", collections), ("measure", config.measures)):
        if twice := next((name for name in words if words.count(name) > 1), ""):
            raise ConfigError(f"{what} {twice!r}", f"is named twice in {what}s", "name it once")
    if (first := next(iter(config.measures), "")).startswith("hole_"):
        problem = "comes first, by which methods are compared: more documents without a judgement are not better"
        raise ConfigError(f"measure {first!r}", problem, f"name another before it: measures=[ndcg_cut_10,{first}]")
    depth = bench.protocols[config.protocol].depth
    for name in config.measures:
        require_depth(f"measure {name!r}", name, config.protocol, depth)
    chosen = {name: bench.methods[name] for name in methods}
    for name, method in chosen.items():
        if isinstance(method, ScoresMethod):
            check_scores(f"method {name}", bench.root, method.settings, bench.collections | groups)
        else:
            method.check_ranks(f"method {name!r}")
    if not any(method.ranks for method in chosen.values()):
        raise ConfigError(f"methods={methods}", "all rows are published numbers", "name a method that ranks, too")
    check_supervision(bench, chosen)
    fused = [run for method in chosen.values() if isinstance(method, FusionMethod) for run in method.settings.runs]
    for name in dict.fromkeys([*chosen, *fused]):
        method = bench.methods[name]
        if isinstance(method, TrainedMethod):
            for paper in modules("checks"):
                if check := getattr(paper, "check_row", None):
                    check(bench, name, method)
    if bench.selection in bench.methods:
        problem = "the table of these collections would have the path of a method's row"
        raise ConfigError(f"collections={bench.selection!r}", problem, "rename the collection's folder")
    _check_columns(bench, set(collections))


def _check_gpus(gpus: int, nodes: int) -> None:
    if gpus % nodes:
        few = max(gpus // nodes, 1) * nodes
        raise ConfigError(
            f"gpus={gpus} nodes={nodes}",
            f"{gpus} GPUs can't be shared equally by {nodes} nodes",
            f"for example: --config gpus={few} nodes={nodes}",
        )


def _check_columns(bench: Bench, names: set[str]) -> None:
    rows = [row for row in bench.collections.values() if names & {row.name, row.column, *row.groups}]
    if not any(row.evaluation_split for row in rows) and not bench.config.byo:
        raise ConfigError(
            f"collections={sorted(names)}",
            "none of them has judged queries: there is no table to make",
            "name a collection with an evaluation_split, or ask for single files",
        )


NEEDED = ("method", "collection", "ndcg_at_10")
KNOWN = ("method", "collection", "source", "kind", *COLUMNS)


def check_scores(where: str, root: Path, settings: ScoreSettings, known: Iterable[str]) -> None:
    """Refuse a file that gives the row no number, or a wrong one.

    Args:
        where: names the method, for errors.
        root: that the file's path starts from.
        settings: of the row.
        known: collections and columns of the registry.

    Raises:
        ConfigError: names the file, its line, and what was expected there.
    """
    path, names = Path(root, settings.file), dict.fromkeys(known)
    if not path.is_file():
        hint = f"give a file with the tab-separated columns {', '.join(NEEDED)}"
        raise ConfigError(f"{where}: file", f"{settings.file} is no file", hint)
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        absent = [name for name in NEEDED if name not in (reader.fieldnames or ())]
        if absent:
            header = ", ".join(map(repr, reader.fieldnames or ())) or "nothing"
            problem = f"lacks column {absent[0]}: its first line has {header}"
            raise ConfigError(f"{where}: {settings.file}", problem, "separate the columns by tabs")
        if unknown := [name for name in reader.fieldnames or () if name not in KNOWN]:
            raise ConfigError(f"{where}: {settings.file}", f"unknown column {unknown[0]!r}", nearest(unknown[0], KNOWN))
        rows = list(enumerate(reader, 2))
    for number, line in rows:
        for column in (name for name in COLUMNS if name in line):
            _check_value(f"{where}: {settings.file}:{number}", column, line[column] or "")
    lines = [(number, line) for number, line in rows if (line["method"] or "").lower() == settings.row.lower()]
    if not lines:
        problem = f"holds no numbers of {settings.row!r}, the row that is shown"
        others = dict.fromkeys(line["method"] or "" for _, line in rows)
        raise ConfigError(f"{where}: {settings.file}", problem, nearest(settings.row, others))
    seen = dict[str, int]()
    for number, line in lines:
        position = f"{where}: {settings.file}:{number}"
        if line["collection"] not in names:
            problem = f"collection {line['collection']!r} is not in the registry"
            raise ConfigError(position, problem, f"{nearest(line['collection'] or '', names)} Else remove the line")
        if first := seen.get(line["collection"]):
            raise ConfigError(position, f"has {line['collection']} again, as line {first} has", "keep one of them")
        seen[line["collection"]] = number


def _check_value(position: str, column: str, text: str) -> None:
    """Refuse what is no share: a measure lies between 0 and 1; an empty cell is none."""
    try:
        is_share = not text or 0 <= float(text) <= 1
    except ValueError:
        is_share = False
    if not is_share:
        raise ConfigError(position, f"{column} is {text!r}, expected a number from 0 to 1", "write 0.712 for 71.2 %")
