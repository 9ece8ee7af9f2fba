"""Learning rate factors by finished optimiser steps. Steps count over all episodes, so schedules survive them."""

from collections.abc import Callable
from typing import Literal

Schedule = Callable[[int], float]


def schedule(kind: Literal["linear", "constant"], warmup_steps: int, total_steps: int) -> Schedule:
    """Factor on the learning rate for the update after `k` finished steps.

    Linear warm-up from 0 over `warmup_steps`; then `linear` falls to 0 at `total_steps`, `constant` stays at 1.
    With warm-up, the first update has learning rate 0, as in ANCE's released code.
    """

    def factor(finished: int) -> float:
        if finished < warmup_steps:
            return finished / warmup_steps
        if kind == "constant":
            return 1.0
        return max(0.0, (total_steps - finished) / max(1, total_steps - warmup_steps))

    return factor
