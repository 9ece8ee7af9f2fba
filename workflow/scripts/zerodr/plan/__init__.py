"""Pure functions from settings to paths, stage settings, shards, targets and resources."""

from zerodr.plan.plan import Plan

__all__ = ["Plan"]
