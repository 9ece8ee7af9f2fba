"""Let Snakemake compute once what it computes again for each job of a plan: a third of the time of a large one.

Nothing else changes: the same jobs, reasons, resources and digests. Seen in Snakemake 9.27.
"""

import ast
import asyncio
import os
import tempfile
from collections.abc import Mapping
from functools import cache, lru_cache
from inspect import signature
from typing import Any


def plan_once(workflow: Any) -> None:
    """Remember, in this process, what is equal for all jobs of a rule.

    * The script: it is looked for, and copied to a cache, for each job.
    * Scheme and path of an address, which are a new class for each call.
    * Wildcards of a pattern, which are searched for each time that they are filled in.
    * Where a pattern begins: that of a log is compiled, though no path of a plan begins like it.
    * Parameters of `evaluate`, which each resource of each job asks for three times.
    * Default resources that are constants, which are compiled and evaluated for each job.

    Args:
        workflow: Snakemake's object of that name, before its first rule is declared.
    """
    import smart_open
    from snakemake import io
    from snakemake.common import overwrite_function_params
    from snakemake.dag import ScriptProcessor
    from snakemake.resources import Resource

    smart_open.parse_uri = cache(smart_open.parse_uri)
    process, seen = ScriptProcessor.process_job, set()

    def process_first(self: Any, job: Any) -> None:
        if job.rule not in seen:
            seen.add(job.rule)
            process(self, job)

    ScriptProcessor.process_job = process_first
    overwrite_function_params(Resource.evaluate, signature(Resource("", 0).evaluate).parameters)
    io.apply_wildcards = _fill
    io._IOFile.match = _match
    defaults = workflow.resource_settings.default_resources or {}
    for name, resource in list(defaults.items()):
        folder = name == "tmpdir" and workflow.output_settings.dryrun  # a run asks where the job is
        value = tempfile.gettempdir() if folder and resource.raw == "system_tmpdir" else constant(resource.raw)
        if resource.is_evaluable() and value is not None:
            defaults[name] = Resource(name, value, raw=resource.raw)


def constant(expression: Any) -> int | str | None:
    """The value of a resource's expression that is a number or a quoted text; None of any other.

    >>> constant("2000"), constant("'--mail-type=END'"), constant("attempt * 60"), constant("'~/logs'")
    (2000, '--mail-type=END', None, None)
    """
    if not isinstance(expression, str) or os.path.expandvars(expression) != expression or "~" in expression:
        return None
    try:
        value = ast.literal_eval(expression)
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, int | str) else None


def text_of_all(name: str, expression: str) -> str:
    """The text that Snakemake gives all jobs as a resource: it need not be quoted, and variables and `~` are filled in.

    Empty where each job has its own.
    """
    from snakemake.exceptions import WorkflowError
    from snakemake.resources import Resource

    try:
        value = Resource.cli_evaluator(name, expression, wildcards={}, input=[], attempt=1, async_run=asyncio.run)
    except WorkflowError:
        return ""
    return str(value or "")


def _fill(pattern: str, wildcards: Mapping[str, Any]) -> str:
    """Do what `apply_wildcards` of Snakemake does."""
    try:
        return "".join(str(wildcards[text]) if named else text for text, named in _split_pattern(str(pattern)))
    except KeyError as error:
        from snakemake.exceptions import WildcardError

        raise WildcardError(str(error)) from None


def _match(pattern: Any, path: str) -> Any:
    """Do what `match` of Snakemake's patterns does."""
    if not hasattr(pattern, "start"):
        pattern.start = pattern.constant_prefix()
    return (pattern.regex().match(path) or None) if path.startswith(pattern.start) else None


@lru_cache(maxsize=4096)
def _split_pattern(pattern: str) -> tuple[tuple[str, bool], ...]:
    """Split a pattern to texts and names of wildcards; say of each whether it is a name."""
    from snakemake.io import WILDCARD_REGEX

    texts, end = [], 0
    for match in WILDCARD_REGEX.finditer(pattern):
        texts += [(pattern[end : match.start()], False), (match["name"], True)]
        end = match.end()
    return (*texts, (pattern[end:], False))
