"""Dump the planned jobs of every recipe, variant, stage and scale as readable text: inputs and parameters.

`python tests/dag/plans.py` writes a file a recipe to tests/dag/golden/plans. A move of code leaves them as they are.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from snakemake.api import SnakemakeApi
from snakemake.settings.types import ConfigSettings, DAGSettings, OutputSettings, Quietness, ResourceSettings

GOLDEN = Path(__file__).parent / "golden" / "plans"
SCALES = ("mini", "lab", "paper")
TARGETS = ("scifact", "arguana")
CONFIG = {"collections": list(TARGETS), "source": "squad-v1.1", "shard_documents": 1_000_000_000, "gpus": 1}
GIVEN = [f"{name}+public" for name in ("dr-contrast", "dr-distill", "ddr-contrast", "ddr-distill")]  # read user files
COMMON = "collections"  # jobs that belong to no recipe


def planned_jobs(root: Path, scale: str) -> list[Any]:
    """Plan the rows, exports and analyses of all methods at a scale; the jobs of Snakemake's graph.

    Args:
        root: a checkout, which is the working folder too.
        scale: mini, lab or paper.
    """
    os.chdir(root)
    quiet = OutputSettings(quiet={Quietness.ALL})
    with SnakemakeApi(quiet) as api:
        settings = ConfigSettings(config=CONFIG | {"scale": scale})
        workflow_api = api.workflow(ResourceSettings(cores=2), settings, snakefile=root / "Snakefile", workdir=root)
        workflow = workflow_api._workflow
        plan = workflow.globals["PLAN"]
        workflow_api.dag(DAGSettings(targets=set(targets_of(plan)), forceall=True))
        workflow._prepare_dag(forceall=True, ignore_incomplete=True, lock_warn_only=True)
        workflow._build_dag()
        return list(workflow.dag.jobs)


def targets_of(plan: Any) -> Iterator[str]:
    """Targets that together need every rule of a recipe."""
    for name, method in plan.bench.methods.items():
        if "@" not in name and method.ranks and name not in GIVEN:
            yield f"results/beir/{name}.tsv"
            if method.kind == "trained":
                scope = TARGETS[0] if plan.chains.is_adapted(name) else "shared"
                yield f"results/exported/{name}/{scope}/manifest.json"
    for paper in plan.bench.papers:
        yield f"results/{paper}/all.html"


def natural(job: Any) -> list[Any]:
    """Sort key of a job: its title, with numbers by value."""
    return [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", title(job))]


def title(job: Any) -> str:
    """Rule and first output of a job."""
    return f"{job.rule.name} {min(map(str, job.output)).removeprefix('results/').removesuffix('/manifest.json')}"


def described(job: Any) -> dict[str, str]:
    """Inputs and parameters of a job by name. `<` marks inputs."""
    named = {f"<{name}": path.removeprefix("results/") for name, path in sorted(input_items(job))}
    settings = job.params.get("settings")
    return named | (dict(flat(json.loads(settings))) if settings is not None else {})


def input_items(job: Any) -> Iterator[tuple[str, str]]:
    """Names and paths of a job's inputs, a list's in its order."""
    for name, value in job.input.items():
        values = [value] if isinstance(value, str) else list(value)
        yield from ((name if len(values) == 1 else f"{name}[{n:03}]", str(path)) for n, path in enumerate(values))


def flat(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Leaves of nested settings with dotted names."""
    if isinstance(value, dict) and value:
        for key in sorted(value):
            yield from flat(value[key], f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix, json.dumps(value)


def recipe_of(job: Any) -> str:
    """The recipe that a job works for: that of its model."""
    wildcards = dict(job.wildcards.items())
    if "paper" in wildcards:
        return f"paper-{wildcards['paper']}"
    return wildcards.get("model", COMMON).partition("@")[0].partition("+")[0]


def dumps(root: Path) -> dict[str, str]:
    """Text by recipe."""
    jobs: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for scale in SCALES:
        for job in planned_jobs(root, scale):
            if job.rule.name not in ("build_row", "all"):
                jobs[recipe_of(job)][scale].append(job)
    return {recipe: "".join(rendered(scales)) for recipe, scales in sorted(jobs.items())}


def rendered(scales: dict[str, list[Any]]) -> Iterator[str]:
    """Text of a recipe: a section a scale, jobs by rule and output.

    A job shows what differs from the same job at `mini` if there is one, else from the job of its rule above it; `-` is
    before names that it lacks.
    """
    first: dict[str, dict[str, str]] = {}
    for scale in SCALES:
        yield f"== {scale}\n"
        above: dict[str, dict[str, str]] = {}
        for job in sorted(scales.get(scale, []), key=natural):
            lines = described(job)
            reference = first.get(title(job)) or above.get(job.rule.name, {})
            changes = [f"  {key}: {value}" for key, value in lines.items() if reference.get(key) != value]
            changes += [f"  -{key}" for key in reference if key not in lines]
            if changes or title(job) not in first:
                yield "\n".join([title(job), *changes]) + "\n"
            above[job.rule.name] = lines
            if scale == SCALES[0]:
                first[title(job)] = lines


def write(root: Path, folder: Path) -> None:
    """Write the dumps, and remove those of recipes that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = dumps(root)
    for path in folder.glob("*.txt"):
        if path.stem not in texts:
            path.unlink()
    for recipe, text in texts.items():
        (folder / f"{recipe}.txt").write_text(text)


if __name__ == "__main__":
    os.environ["ZERODR_MY"] = ""  # what is in config/my is no part of what is shipped
    write(Path(__file__).resolve().parents[2], Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else GOLDEN)
