"""Resolve hub models to commits and lock them in `config/revisions.yaml`: every machine gets the same weights."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from zerodr.artifacts.record import STATE
from zerodr.config.pins import LOCK, read_lock, render_lock
from zerodr.encoders.start.hub import ask_hub, cached_commit
from zerodr.errors import ConfigError, ModelError

MAIN, UNREACHED = "main", "the hub can't be reached"


def lock_models(models: Mapping[str, str], offline: bool, root: Path = Path(".")) -> list[str]:
    """Resolve models that the lock does not hold yet, and write it.

    All models are resolved before the file changes, which one run at a time does.

    Args:
        models: names on the hub, and a method that needs each.
        offline: take the commit of the hub cache.
        root: of the checkout.

    Returns:
        a line a model, to be shown.

    Raises:
        ModelError: a model can't be resolved; names its method and the next step.
        ConfigError: the lock can't be read or written.
    """
    from filelock import FileLock

    path, lines = (root / LOCK).resolve(), []  # a rehearsal has a link to it
    state = path.parents[1] / STATE
    state.mkdir(parents=True, exist_ok=True)
    with FileLock(state / "revisions.lock"):
        locked = read_lock(path)
        for model, method in models.items():
            if model not in locked:
                commit, remark = _resolved(model, method, offline)
                locked[model] = commit, datetime.now(UTC).date()
                lines.append(f"{model} is locked at commit {commit} ({LOCK}){remark}")
        if lines:
            write_lock(path, locked)
    return lines


def _resolved(model: str, method: str, offline: bool) -> tuple[str, str]:
    """Ask the hub for the commit of `main`; where it can't be reached, the cache, with a remark."""
    try:
        if not offline and (commit := ask_hub(model, MAIN)):
            return commit, ""
        return cached_commit(model), f": that of the hub cache, as {'offline is true' if offline else UNREACHED}"
    except ModelError as error:
        raise ModelError(f"{model} (method {method})", error.what, error.next_step) from None


def write_lock(path: Path, locked: Mapping) -> None:
    """Replace the file as a whole.

    Raises:
        ConfigError: the folder is not writable.
    """
    try:
        draft = path.with_suffix(".tmp")
        draft.write_text(render_lock(locked), encoding="utf-8")
        os.replace(draft, path)
    except OSError as error:
        raise ConfigError(LOCK, f"can't be written ({error.strerror})", "make the folder config/ writable") from None


def compare_lock(names: Iterable[str] = (), renew: bool = False, root: Path = Path(".")) -> list[str]:
    """Compare the lock with the hub, a line a model, and renew it where asked.

    Args:
        names: models; none: all.
        renew: lock the commit that the hub calls `main` now.
        root: of the checkout.

    Raises:
        ConfigError: a name is not in the lock, or the lock can't be read or written.
    """
    locked = read_lock(root / LOCK)
    chosen = list(names) or sorted(locked)
    if absent := [name for name in chosen if name not in locked]:
        raise ConfigError(LOCK, f"holds no model {absent[0]!r}", "a run locks a model when it first needs it")
    lines, renewed = [], dict(locked)
    for model in chosen:
        commit, day = locked[model]
        try:
            current, problem = ask_hub(model, MAIN), UNREACHED
        except ModelError as error:
            current, problem = None, error.what
        if current is None:
            state = f"not compared: {problem}"
        elif current == commit:
            state = "the hub's main is the same"
        elif renew:
            renewed[model] = current, datetime.now(UTC).date()
            state = f"renewed to {current}: models that start from it are made anew"
        else:
            state = f"the hub's main is {current} now, which is not followed (zerodr pin --renew {model})"
        lines.append(f"{model}  {commit}  {day}  {state}")
    if renewed != locked:
        write_lock(root / LOCK, renewed)
    return lines or [f"{LOCK} holds no model: a run locks those of the hub that it needs"]
