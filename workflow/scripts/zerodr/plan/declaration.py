"""Complete the declarations of rules: a rule file says what a rule reads and writes, its record says the rest."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from zerodr.plan.plan import Plan
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
