"""Plan the DAG: pure functions from a checked configuration to paths, inputs, params, targets and resources."""

from zerodr.papers import modules
from zerodr.plan import (  # noqa: F401
    adaptation,
    collections,
    dense,
    evaluation,
    feedback,
    items,
    lexical,
    mining,
    reporting,
    training,
)
from zerodr.plan.plan import Plan

PAPERS = modules("plan")  # which register their rules as they are imported

__all__ = ["Plan"]
