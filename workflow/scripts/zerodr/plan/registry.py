"""Register by a rule's name the functions that give its inputs and its params, and what papers add to them.

The core's functions are in `zerodr.plan`, in a module with the rule file's name. A paper's are in its module `plan`.
"""

from collections.abc import Callable
from typing import Any, TypeVar

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
