"""Answer the rules: what the DAG looks like for one configuration. Nothing here touches a file.

Functions that give a rule's inputs and its params, and what papers add to them, are registered by the rule's name:
the core's in `zerodr.plan`, in a module with the rule file's name, a paper's in its module `plan`.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar

from zerodr.config.base import canonical_json
from zerodr.config.bench import Bench
from zerodr.config.counterparts import seeds_in
from zerodr.config.files import refuse_braces
from zerodr.config.methods import FeedbackMethod, FusionMethod, Method, RunMethod
from zerodr.config.registry import EVERY, Collection
from zerodr.config.rehearsal import Rehearsal
from zerodr.config.settings import Protocol
from zerodr.config.user_folders import SECTIONS
from zerodr.errors import ConfigError, nearest
from zerodr.plan import paths
from zerodr.plan.chains import Chains
from zerodr.plan.lines import Link, link_of, with_signature
from zerodr.plan.resources import Ceiling, Estimate, Machines
from zerodr.plan.rules import RULES, version_of

Files = dict[str, Any]
Params = dict[str, Any]
Additions = dict[tuple[str, str], Callable[..., dict[str, Any]]]
"""Functions by rule and field of a stage."""
Function = TypeVar("Function", bound=Callable[..., Any])

INPUTS: dict[str, Callable[..., dict[str, Any]]] = {}
PARAMS: dict[str, Callable[..., dict[str, Any]]] = {}
DRAWS: dict[str, Callable[..., bool]] = {}
ADDED_INPUTS: Additions = {}
ADDED_PARAMS: Additions = {}
DOCUMENTS_ALONE: Additions = {}
QUERIES: dict[str, Callable[..., str]] = {}
REMARKS: list[Callable[..., list[str]]] = []
READS_TARGET: set[str] = set()
"""Fields of fine-tuning stages that let a stage learn from texts of its target."""


def inputs(*rules: str) -> Callable[[Function], Function]:
    """Register `(plan, wildcards) -> input files by name` of rules."""
    return _register(INPUTS, rules)


def params(*rules: str) -> Callable[[Function], Function]:
    """Register `(plan, wildcards) -> params by name` of rules."""
    return _register(PARAMS, rules)


def draws(rule: str) -> Callable[[Function], Function]:
    """Register `(plan, wildcards) -> bool` of a rule: whether a job draws random numbers, where not every job does."""
    return _register(DRAWS, [rule])


def adds_inputs(rule: str, field: str) -> Callable[[Function], Function]:
    """Register `(plan, link) -> input files` that a stage with a field other than None adds to a rule's."""
    return _register(ADDED_INPUTS, [(rule, field)])


def adds_params(rule: str, field: str) -> Callable[[Function], Function]:
    """Register `(plan, link) -> params` that a stage with a field other than None adds to a rule's."""
    return _register(ADDED_PARAMS, [(rule, field)])


def documents_alone(rule: str, field: str) -> Callable[[Function], Function]:
    """Register `(plan, link) -> {input: bool}` of what a stage with a field other than None adds to a rule's inputs.

    True: of these collections it reads documents alone, so that new queries or judgements of a folder change nothing.
    """
    return _register(DOCUMENTS_ALONE, [(rule, field)])


def embeds_queries(field: str) -> Callable[[Function], Function]:
    """Register `(plan, row, link, collection, protocol, split) -> path` of query embeddings.

    They replace those of rule `embed_queries` where the model's stage has a field other than None.
    """
    return _register(QUERIES, [field])


def remarks(function: Function) -> Function:
    """Register `(plan, row) -> footnotes` of trained rows."""
    REMARKS.append(function)
    return function


def _register(table: dict[Any, Any], keys: Any) -> Callable[[Function], Function]:
    def keep(function: Function) -> Function:
        for key in keys:
            if key in table:
                raise ValueError(f"{key} is registered twice")
            table[key] = function
        return function

    return keep


SIGNATURE = inspect.signature(lambda wildcards: None)


class Plan:
    """Inputs, params and resources of the rules for a checked configuration, and a few facts that they share.

    Args:
        bench: the configuration.
        estimate: makes estimates of the plan's jobs, by which they ask for time and memory.
        ceilings: what the cluster has for each rule; filled in by then, later attempts ask for no more.
        options: of sbatch, which all jobs have; None: jobs run on this machine.
    """

    def __init__(
        self,
        bench: Bench,
        estimate: Callable[["Plan"], Estimate] | None = None,
        ceilings: Mapping[str, Ceiling] | None = None,
        options: str | None = None,
    ) -> None:
        self.bench = bench
        self.config = bench.config
        self.wanted = bench.wanted
        """Evaluated collections of the main table, in registry order, gated ones included."""
        self.selection = bench.selection
        """Name of the main table's collections in paths."""
        self.columns = bench.columns
        """The wanted collections that are available."""
        byo = [row.models_of or row.name for row in bench.collections.values() if row.kind == "own"]
        missing = [row.name for row in self.wanted if row not in self.columns]
        self.chains = Chains(bench, [*(row.models_of or row.name for row in self.columns), *byo], missing)
        self.machines = Machines(bench, estimate and estimate(self), {} if ceilings is None else ceilings, options)

    # ---- what rules ask for ------------------------------------------------------------------------------------
    def inputs(self, rule: str) -> Callable[[Any], Files]:
        """The `input: unpack()` of a rule: wildcards -> paths by name."""
        function = INPUTS[rule]

        @with_signature(SIGNATURE)
        def files(wildcards: Any) -> Files:
            listed = function(self, wildcards)
            for value in listed.values():
                refuse_braces([value] if isinstance(value, str) else value)
            sections = self._sections_of(rule, listed, wildcards) if self.bench.folders else []
            return listed | ({"sections": sections} if sections else {})

        return files

    def _sections_of(self, rule: str, files: Files, wildcards: Any) -> list[str]:
        """Manifests of queries and judgements that a job reads next to the corpora of users' folders."""
        extended = any(name == rule for name, _ in DOCUMENTS_ALONE)
        alone = self.added(DOCUMENTS_ALONE, rule, link_of(wildcards)) if extended else {}
        values = [value for key, value in files.items() if not alone.get(key)]
        listed = {path for value in values for path in ([value] if isinstance(value, str) else value)}
        names = [name for name in self.bench.folders if paths.collection(name) in listed]
        reads = "all" if getattr(wildcards, "split", EVERY) != EVERY else RULES[rule].reads
        return [
            paths.collection_section(name, section) for name in names for section in self._sections_read(name, reads)
        ]

    def _sections_read(self, name: str, reads: str) -> list[str]:
        present = [section for section in SECTIONS[1:] if section in self.bench.folders[name].files]
        return {"corpus": [], "queries": ["queries"], "all": present}[reads]

    def settings(self, rule: str) -> Callable[[Any], str]:
        """The `params: settings=` of a rule: wildcards -> canonical JSON, so that equal settings look equal."""
        function, nodes = PARAMS[rule], self.machines.nodes(rule)

        @with_signature(SIGNATURE)
        def render(wildcards: Any) -> str:
            values = function(self, wildcards) | ({"nodes": nodes} if nodes > 1 else {})
            seed = self.seed(wildcards) if self._draws(rule, wildcards) else 0
            cut = self.cut(rule, wildcards)
            rehearsal = {} if cut is None else {"rehearsal": cut.model_dump()}
            return canonical_json({"version": version_of(rule, values), "seed": seed, "settings": values} | rehearsal)

        return render

    def cut(self, rule: str, wildcards: Any) -> Rehearsal | None:
        """What a rehearsal does of a job's work; None in a run, and for downloads, which a run takes over."""
        if not self.config.rehearse or RULES[rule].downloads:
            return None
        name = getattr(wildcards, "collection", "")
        row = self.bench.collections.get(name)
        learned = name in self.chains.sources() or (row is not None and bool(row.judged_split))
        return Rehearsal() if not learned else Rehearsal(questions=Rehearsal().training_questions)

    def seed(self, wildcards: Any) -> int:
        """Source of a job's random choices: in its path, else of the method whose model it makes, else the bench's."""
        if (named := getattr(wildcards, "seed", None)) is not None:
            return int(named)
        method = self.bench.methods.get(getattr(wildcards, "model", ""))
        return self.config.seed if method is None or method.seed is None else method.seed

    def _draws(self, rule: str, wildcards: Any) -> bool:
        """Whether a job draws random numbers; only those run again when the seed changes."""
        draws = DRAWS.get(rule)
        return RULES[rule].seeded if draws is None else draws(self, wildcards)

    def added(self, table: Additions, rule: str, link: Link) -> dict[str, Any]:
        """Join what the fields of a stage add to a rule's inputs or params."""
        stage, added = self.chains.find_stage(link), dict[str, Any]()
        for (name, field), function in table.items():
            if name == rule and stage is not None and stage.find(field) is not None:
                added |= function(self, link)
        return added

    def resources(self, rule: str) -> dict[str, Any]:
        """The `resources:` of a rule."""
        return self.machines.resources(rule)

    def threads(self, rule: str) -> int:
        """The `threads:` of a rule."""
        return self.machines.threads(rule)

    # ---- facts that rules share --------------------------------------------------------------------------------
    @property
    def source(self) -> str:
        """The collection with supervision."""
        return self.config.source or self.bench.scale.source

    @property
    def methods(self) -> tuple[str, ...]:
        """Rows of the main table."""
        return self.bench.rows

    @cached_property
    def _labels(self) -> dict[str, set[str]]:
        rows: dict[str, set[str]] = {}
        for name in self.methods:
            rows.setdefault(self.method(name).label, set()).add(name)
        return rows

    def label(self, name: str) -> str:
        """Label of a method; with its name where another row of the main table bears the same."""
        label = self.method(name).label
        return f"{label} ({name})" if self._labels.get(label, set()) - {name} else label

    @property
    def ranked(self) -> list[str]:
        """Rows of the main table that rank; the others are published numbers."""
        return [name for name in self.methods if self.method(name).ranks]

    def has_run(self, method: str, collection: str) -> bool:
        """Whether a method ranks a collection: an imported one has files of some."""
        chosen = self.method(method)
        if isinstance(chosen, FeedbackMethod):
            return self.has_run(chosen.settings.memory, collection)
        if isinstance(chosen, FusionMethod):
            return all(self.has_run(run, collection) for run in chosen.settings.runs)
        return chosen.ranks and (not isinstance(chosen, RunMethod) or collection in chosen.settings.files)

    def collection(self, name: str) -> Collection:
        """The registry row of `name`."""
        return self.bench.collections[name]

    def labelled(self, collection: str, split: str) -> str:
        """Manifest of the collection with the queries of a split, which may be generated ones."""
        maker = self.chains.generated_splits().get(split)
        if maker is None:
            return paths.collection(collection)
        return paths.generated(maker.method, self.collection(collection).column, maker.stage)

    def method(self, name: str) -> Method:
        """The method with the full name `name`.

        Raises:
            ConfigError: the configuration has none.
        """
        if name not in self.bench.methods:
            seeds = seeds_in([name])
            step = f"--config seeds={seeds} adds it" if seeds else nearest(name, self.bench.methods)
            raise ConfigError(name, "not in the configuration", step)
        return self.bench.methods[name]

    def protocol(self, name: str) -> Protocol:
        """The protocol called `name`."""
        return self.bench.protocols[name]

    def link(self, wildcards: Any, stage: str = "") -> Link:
        """The model that a rule's wildcards name; there must be such a model."""
        return self.chains.check(link_of(wildcards, stage))

    def evaluations(self, output: str, model: str | None = None) -> list[str]:
        """`summary` or `per_query` files of the main table, or of one of its rows.

        Raises:
            ConfigError: no column is left.
        """
        if not self.columns:
            unjudged, steps = self._unjudged(), [one.fault[2] for one in self.bench.folders.values() if one.fault]
            reasons = [*self.bench.faults.values(), *unjudged]
            steps = [*dict.fromkeys(steps[:3]), *["add qrels/test.tsv"] * bool(unjudged or not steps)]
            step = f"{', '.join(steps)}, name other collections, or ask for single files: zerodr targets"
            raise ConfigError("the table", f"has no column: {'; '.join(reasons[:3]) or 'none is available'}", step)
        name = {"summary": paths.summary, "per_query": paths.per_query}[output]
        cells = [(m, row.name) for m in ([model] if model else self.ranked) for row in self.columns]
        return [name(m, collection, self.config.protocol) for m, collection in cells if self.has_run(m, collection)]

    def _unjudged(self) -> list[str]:
        names = [name for name in self.bench.folders if not self.collection(name).evaluation_split]
        unread = {name: self.bench.folders[name].unread for name in names}
        return [f"{name} has no judgements{f' ({unread[name]})' if unread[name] else ''}" for name in names]

    # ---- shards ------------------------------------------------------------------------------------------------
    def shard_count(self, name: str) -> int:
        """Embedding shards of a collection: static, from the registry or the estimate. Unknown sizes make one shard."""
        return max(1, -(-self.collection(name).planned_documents // self.machines.shard_size))

    def shard_names(self, kind: str, name: str) -> list[str]:
        """Names of all shards of a collection's corpus."""
        count = self.shard_count(name)
        return [paths.shard(kind, number, count) for number in range(count)]


def shard_numbers(shard: str) -> dict[str, int]:
    """Read `00003-of-00010` as 3 and 10."""
    number, count = shard.split("-of-")
    return {"shard": int(number), "shards": int(count)}
