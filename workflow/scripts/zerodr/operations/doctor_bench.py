"""Check what this machine lacks for the bench, and name the remedy. One finding a line; nothing is changed."""

import os
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from zerodr.config.base import mapping
from zerodr.config.files import read_yaml
from zerodr.config.load import load_bench
from zerodr.config.quantities import GIBI, MEBI, first_names
from zerodr.errors import ConfigError, MachineError
from zerodr.lineage.store import FOLDER, RENAME, path_problem, shown_uri, tracking_uri
from zerodr.operations.doctor_machine import (
    LEAST_MEMORY_MIB,
    PATIENCE_S,
    SCALES,
    Check,
    ScaleNeeds,
    caches,
    hub,
    machine_checks,
    memory_mib,
    mirrors,
    runnable,
    writable,
)
from zerodr.operations.estimate.sizes import MORE_ROOM, in_mirror, is_unpinned, lack_of_room
from zerodr.operations.estimate.work import largest_training
from zerodr.plan import Plan, paths


def examine_bench(plan: Plan) -> list[Check]:
    """Check everything that the plan's scale needs."""
    machine = machine_checks(java(), *disk(plan))
    archived = [mirrors(Path("config/config.yaml")), *archives(plan), hub(plan.config.offline), mlflow()]
    able = runnable(shutil.disk_usage(".").free, memory_mib(), machine[-2].state == "ok", needs_of_scales(plan))
    return [*machine, *archived, writable(), caches(), *scales(plan), *able]


def java() -> Check:
    """Check Java and the jar for Lucene."""
    from zerodr.lexical.jvm import java_status

    try:
        return Check("Java", "ok", java_status())
    except MachineError as error:
        return Check("Java", "missing", error.what, f"{error.next_step} (or methods: [bm25-flat+bm25s])")


def disk(plan: Plan) -> Iterator[Check]:
    """Compare free space with the needs of the scale's whole table, where they are known and nothing is there yet."""
    free, scale = shutil.disk_usage(".").free, plan.config.scale
    needed, detail = SCALES[scale].disk_gib if scale in SCALES else None, f"{free / GIBI:.1f} GiB free"
    if needed is not None:
        detail += f", the table of scale {scale} needs about {needed:.0f} GiB"
    if needed is not None and lack_of_room(needed * GIBI):
        begun = Path("results").exists() or {"methods", "collections"} & plan.config.model_fields_set
        yield Check("disk", "optional" if begun else "missing", detail, MORE_ROOM)
    else:
        yield Check("disk", "ok", detail)
    inodes = os.statvfs(".")
    if inodes.f_files and inodes.f_favail < 10_000:
        yield Check("inodes", "missing", f"{inodes.f_favail} left", "delete small files")


def archives(plan: Plan) -> Iterator[Check]:
    """Check the archives of the plan's scale: downloaded, in a mirror folder, or still to fetch."""
    rows = {row.archive: row for row in [*plan.columns, plan.collection(plan.source)] if row.kind != "own"}
    far = [row for name, row in rows.items() if not Path(paths.archive(name)).exists() and not in_mirror(plan, name)]
    present = f"{len(rows) - len(far)} of {len(rows)} archives are available"
    unpinned = [name for name, row in rows.items() if is_unpinned(plan, row)]
    tail = f"; not pinned by a checksum: {first_names(unpinned)}" if unpinned else ""
    if not far:
        yield Check("archives", "ok", present + tail)
        return
    size = sum(row.archive_bytes or 0 for row in far) / MEBI
    names = first_names([row.archive for row in far])
    without = [row.archive for row in far if not row.addresses]
    step = f"put them into a mirror folder: {', '.join(plan.config.mirrors) or 'mirrors in config/config.yaml'}"
    if plan.config.offline or without:
        reason = "offline is set" if plan.config.offline else f"no address for {first_names(without)}"
    else:
        first = far[0].addresses
        reason = "" if any(_answers(url) for url in first) else f"{first[0]} can't be reached"
    if reason:
        yield Check("archives", "missing", f"{present}; absent: {names}; {reason}{tail}", step)
    else:
        present += f"; the run fetches {size:.0f} MiB: {names}{tail}"
        yield Check("archives", "optional", present, f"or {step}")


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=PATIENCE_S):
            return True
    except OSError:
        return False


def mlflow() -> Check:
    """Check the store of published lineage."""
    uri = tracking_uri()
    if problem := path_problem(uri):
        return Check("MLflow", "missing", problem, RENAME)
    if uri.startswith(("http:", "https:")):
        try:
            with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=PATIENCE_S) as answer:
                return Check("MLflow", "ok", f"{shown_uri(uri)} answers {answer.status}")
        except OSError as error:
            detail = f"{shown_uri(uri)}: {getattr(error, 'reason', error)}"
            return Check("MLflow", "missing", detail, "start the server, or: unset MLFLOW_TRACKING_URI")
    exists = (FOLDER / "mlflow.db").exists()
    return Check("MLflow", "ok", f"{shown_uri(uri)}{'' if exists else ' (the first run creates it)'}")


def scales(plan: Plan, root: Path = Path(".")) -> Iterator[Check]:
    """Check whether the configuration is valid at every other scale too."""
    given = plan.config.model_dump(exclude_unset=True)
    others = sorted(set(mapping(read_yaml(root / "config/scales.yaml"), "config/scales.yaml")) - {plan.config.scale})
    for scale in others:
        try:
            load_bench(root, given | {"scale": scale})
        except ConfigError as error:
            yield Check(f"scale {scale}", "optional", f"{error.where}: {error.what}", error.next_step)
        else:
            yield Check(f"scale {scale}", "ok", "its configuration is valid")


def needs_of_scales(plan: Plan, root: Path = Path(".")) -> dict[str, ScaleNeeds]:
    """Estimate the needs of the default target at each scale whose configuration is valid; disk as in SCALES."""
    given = plan.config.model_dump(exclude_unset=True)
    needs = {}
    for name in mapping(read_yaml(root / "config/scales.yaml"), "config/scales.yaml"):
        try:
            other = Plan(load_bench(root, given | {"scale": name}))
        except ConfigError:  # `scales` reports it
            continue
        trained = any(other.method(method).kind == "trained" for method in other.methods)
        memory = largest_training(other) if trained and other.bench.scale.gpus else LEAST_MEMORY_MIB
        disk_gib = SCALES[name].disk_gib if name in SCALES else None
        needs[name] = ScaleNeeds(disk_gib, memory, trained and other.machines.training_gpus > 0)
    return needs
