"""Write what rules share: wildcard constraints that match the names of a configuration alone, logs, parameters."""

import os
import re
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from zerodr.plan.lines import SCOPE, remembered
from zerodr.plan.mining import SUFFIX
from zerodr.plan.plan import Plan
from zerodr.plan.published import PUBLISHED, comparison
from zerodr.plan.rules import RULES, facts_of


def complete_rules(workflow: Any, plan: Plan, environment: str) -> None:
    """Let rules that are declared from now on have the keywords that follow from their record.

    These are log, benchmark, environment, threads, resources, params, and whether jobs run next to Snakemake. Each
    keyword of a rule file is a call of `workflow`, before Snakemake registers the rule; these are the same calls.

    Args:
        workflow: Snakemake's object of that name.
        plan: answers by the rule's name.
        environment: path of the conda environment.
    """
    register = workflow.rule

    def rule(name: str | None = None, **position: Any) -> Callable[[Any], Any]:
        def declare(declared: Any) -> Any:
            if name in RULES:
                where = log_pattern(declared.output.kwpaths.values()) or plan.selection
                for add in (
                    workflow.log(f"results/logs/{name}/{where}.log"),
                    workflow.benchmark(f"results/benchmarks/{name}/{where}.tsv"),
                    workflow.conda(environment),
                    workflow.threads(plan.threads(name)),
                    workflow.resources(**plan.resources(name)),
                    workflow.params(settings=plan.settings(name)),
                    workflow.localrule(facts_of(name).local),
                ):
                    declared = add(declared)
            return register(name=name, **position)(declared)

        return declare

    workflow.rule = rule


def log_pattern(outputs: Iterable[str]) -> str:
    """Join the wildcards of the first output, in their order, to a pattern for a log.

    >>> log_pattern(["results/models/{model}/{scope}/init/manifest.json"])
    '{model}/{scope}'
    """
    names = re.findall(r"{(\w+)", next(iter(outputs)))
    return "/".join(f"{{{name}}}" for name in dict.fromkeys(names))


NOTHING = r"(?!)"


class Patterns:
    """Wildcard constraints of a plan.

    Args:
        plan: the plan.
    """

    def __init__(self, plan: Plan) -> None:
        self.bench, self.lines = plan.bench, plan.chains

    @remembered
    def methods(self, *kinds: str) -> str:
        """Methods of these kinds."""
        return alternatives(name for name, method in self.bench.methods.items() if method.kind in kinds)

    @remembered
    def chains(self) -> str:
        """Trained methods by the names of their chains, without a stage."""
        return alternatives(self.lines.names())

    @remembered
    def stages(self, *kinds: str) -> str:
        """Stages of these kinds in all chains, and those that a rule with such a name trains."""
        chains = [self.lines.trained(name).chain for name in self.lines.names()]
        stages = [(name, stage) for chain in chains for name, stage in chain.items()]
        return alternatives(name for name, stage in stages if stage.kind in kinds or stage.rule in kinds)

    @remembered
    def scopes(self) -> str:
        """`shared`, and every target that models may be made for."""
        return alternatives([SCOPE, *(row.column for row in self.bench.collections.values())])

    @remembered
    def targets(self) -> str:
        """Every target that models may be made for."""
        return alternatives(row.column for row in self.bench.collections.values())

    @remembered
    def collections(self) -> str:
        """The registry's collections."""
        return alternatives(self.bench.collections)

    @remembered
    def proxies(self) -> str:
        """Collections with known items that were held out."""
        return alternatives(row.name for row in self.bench.collections.values() if row.kind == "proxy")

    @remembered
    def of_folders(self) -> str:
        """The user's own collections."""
        return alternatives(self.bench.folders)

    @remembered
    def published(self) -> str:
        """Collections that come as archives."""
        rows = self.bench.collections.values()
        return alternatives(row.name for row in rows if row.has_archive)

    @remembered
    def transformed(self) -> str:
        """Collections that are made of others."""
        rows = self.bench.collections.values()
        return alternatives(row.name for row in rows if row.transform)

    @remembered
    def splits(self) -> str:
        """Splits of judged queries, and of generated ones."""
        return f"(?:{alternatives(self.lines.generated_splits())}|[A-Za-z0-9_-]+)"

    @remembered
    def ranked_splits(self) -> str:
        """Splits, and samples of them."""
        return f"{self.splits()}(?:{SUFFIX})?"

    @remembered
    def protocols(self) -> str:
        """Protocols."""
        return alternatives(self.bench.protocols)

    @remembered
    def papers(self) -> str:
        """The papers of config/papers."""
        return alternatives(self.bench.papers)

    @remembered
    def comparisons(self) -> str:
        """Names of the comparison with all numbers of a paper: typed, and as another table than the whole has it."""
        return alternatives({PUBLISHED, comparison(self.bench.selection)})

    @remembered
    def items(self) -> str:
        """The items of all papers."""
        return alternatives(name for paper in self.bench.papers.values() for name in paper.items)


def alternatives(names: Iterable[str]) -> str:
    """Match these names. Common beginnings and stages are written once: Snakemake reads constraints for every file."""
    ends: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        method, at, stage = name.partition("@")
        ends.setdefault(method, []).append(at + stage)
    alike: dict[tuple[str, ...], list[str]] = {}
    for method, stages in ends.items():
        alike.setdefault(tuple(stages), []).append(method)
    patterns = [_branches(methods) + _branches(list(stages)) for stages, methods in alike.items()]
    return f"(?:{'|'.join(patterns)})" if patterns else NOTHING


def _branches(names: list[str]) -> str:
    branches = []
    for _, alike in groupby(names, lambda name: name[:1]):
        family = list(alike)
        start = os.path.commonprefix(family)
        rest = _branches([name[len(start) :] for name in family]) if len(family) > 1 else ""
        branches.append(re.escape(start) + rest)
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
