"""What a target still needs, from Snakemake's dry run and the registry's sizes."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

from zerodr.config.methods import EncoderMethod, TrainedMethod
from zerodr.errors import ConfigError
from zerodr.plan import Plan
from zerodr.plan.targets import is_target, nearest_target
from zerodr.plan.training import SCRATCH

RULE = re.compile(r"^(?:local)?rule (\w+):$")
WILDCARDS = re.compile(r"^    wildcards: (.+)$")
FILES = re.compile(r"^    (input|output): (.+)$")
MEBI, GIBI = 2**20, 2**30
USUAL_DIMENSION = 768
FLOAT_BYTES = 4
MOST_NAMES = 5
MOST_SHARDS = 8
UNPACKED = 4  # a normalised collection with its indexes takes about this many times its archive


@dataclass(frozen=True)
class Job:
    """One planned job: its rule, wildcards, and the files that it reads and makes."""

    rule: str
    wildcards: dict[str, str]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Forecast:
    """What jobs need.

    Attributes:
        jobs: number of jobs by rule, in the order of the plan.
        shards: embedding shards by `model/collection`.
        download_bytes: size by archive; None when the registry does not know it.
        local: archives that a mirror folder has.
        embedding_bytes: size of embeddings by model.
        assumed: models whose dimension is not known yet and was taken as USUAL_DIMENSION.
        memory_mib: the most that one job asks for.
        gpu_jobs: jobs that run on a GPU.
    """

    jobs: dict[str, int]
    shards: dict[str, int]
    download_bytes: dict[str, int | None]
    local: tuple[str, ...]
    embedding_bytes: dict[str, int]
    assumed: tuple[str, ...]
    memory_mib: int
    gpu_jobs: int


def dry_run(target: str, config: list[str], plan: Plan) -> list[Job]:
    """The jobs that Snakemake would run for a target; `plan` is the one that the `config` words make.

    Raises:
        ConfigError: Snakemake refuses the target or the configuration; its last words are repeated.
    """
    command = [sys.executable, "-m", "snakemake", target, "--dry-run", "--nolock", "--cores", "1"]
    command += ["--config", *config] if config else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        told = next((line for line in said if re.match(r"\w*Error: ", line)), said[-1] if said else "no output")
        mend = f"see: snakemake -n {target}" if is_target(target, plan) else nearest_target(target, plan)
        raise ConfigError(target, f"can't be planned: {told.split(' (if ')[0].rstrip('.')}", mend)
    return parse_jobs(done.stdout + done.stderr)


def parse_jobs(output: str) -> list[Job]:
    """Jobs of a dry run's output, in its order."""
    jobs: list[Job] = []
    for line in output.splitlines():
        if rule := RULE.match(line):
            jobs.append(Job(rule.group(1), {}))
        elif (files := FILES.match(line)) and jobs:
            paths = tuple(files.group(2).split(", "))
            made = files.group(1) == "output"
            jobs[-1] = replace(jobs[-1], outputs=paths) if made else replace(jobs[-1], inputs=paths)
        elif (wildcards := WILDCARDS.match(line)) and jobs:
            pairs = (pair.partition("=") for pair in wildcards.group(1).split(", "))
            jobs[-1].wildcards.update({name: value for name, _, value in pairs})
    return jobs


def forecast(jobs: list[Job], plan: Plan) -> Forecast:
    """Sizes of what the jobs download and write."""
    archives = [job.wildcards["archive"] for job in jobs if job.rule == "fetch_archive"]
    embeds = [job.wildcards for job in jobs if job.rule in ("embed_corpus", "embed_queries")]
    scopes = {wc["model"]: wc["scope"] for wc in embeds}
    dimensions = {name: known_dimension(plan, name, scope) for name, scope in scopes.items()}
    sizes: Counter[str] = Counter()
    for wc in embeds:
        sizes[wc["model"]] += _rows(plan, wc) * (dimensions[wc["model"]] or USUAL_DIMENSION) * FLOAT_BYTES
    corpus = Counter(f"{wc['model']}/{wc['collection']}" for wc in embeds if "shard" in wc)
    return Forecast(
        jobs=dict(Counter(job.rule for job in jobs)),
        shards=dict(corpus),
        download_bytes={name: plan.archive_row(name).archive_bytes for name in archives},
        local=tuple(name for name in archives if in_mirror(plan, name)),
        embedding_bytes=dict(sizes),
        assumed=tuple(sorted(name for name, dimension in dimensions.items() if dimension is None)),
        memory_mib=max((plan.memory_mib(job.rule)(SimpleNamespace(**job.wildcards)) for job in jobs), default=0),
        gpu_jobs=sum(plan.gpus(job.rule) > 0 for job in jobs),
    )


def _rows(plan: Plan, wildcards: dict[str, str]) -> int:
    row = plan.collection(wildcards["collection"])
    if "shard" not in wildcards:
        return row.splits.get(wildcards["split"]) or row.queries or 0
    return -(-row.planned_documents // plan.shard_count(row.name))


def in_mirror(plan: Plan, archive: str) -> bool:
    """True when a mirror folder has the archive."""
    return any(Path(folder, archive).exists() for folder in plan.config.mirrors)


def known_dimension(plan: Plan, model: str, scope: str) -> int | None:
    """Width of a model's embeddings, from its folder, its settings or what it starts from; None: not here yet."""
    method, start = plan.method(model), ""
    if isinstance(method, EncoderMethod):
        start = method.settings.model
    elif isinstance(method, TrainedMethod):
        origin = plan.chains.origin(model.partition("@")[0])
        if origin.init == SCRATCH:
            return origin.architecture.hidden
        start = origin.init
    for folder in (Path(plan.model_of(model, scope)).parent, *(_model_folders(start) if start else ())):
        if (folder / "config.json").exists():
            width = json.loads((folder / "config.json").read_text()).get("hidden_size")
            return int(width) if width else None
    return None


def _model_folders(place: str) -> list[Path]:
    """Where the model that a method names stands: inside a Python package, or at the path itself."""
    if not place.startswith("package:"):
        return [Path(place)]
    spec = importlib.util.find_spec(place.removeprefix("package:"))
    homes = spec.submodule_search_locations if spec else None
    return [Path(home) / "model" for home in homes or ()]


def render(target: str, needs: Forecast) -> str:
    """The forecast as text."""
    if not needs.jobs:
        return f"{target}: nothing to be done"
    width = max(len(rule) for rule in needs.jobs)
    lines = [f"{target} needs {sum(needs.jobs.values())} jobs:"]
    lines += [f"  {rule:<{width}}  {count:>7}" for rule, count in needs.jobs.items()]
    sharded = dict(Counter({name: count for name, count in needs.shards.items() if count > 1}).most_common(MOST_SHARDS))
    lines.append(f"shards      {sum(needs.shards.values())} for {len(needs.shards)} pairs of model and collection"
                 + "".join(f"\n            {name}: {count}" for name, count in sharded.items()))  # fmt: skip
    lines += [_downloads(needs), _disk(needs)]
    lines.append(f"memory      {needs.memory_mib} MiB for the largest job")
    lines.append(f"GPU         {needs.gpu_jobs} jobs ask for one" if needs.gpu_jobs else "GPU         not asked for")
    return "\n".join(lines)


def _downloads(needs: Forecast) -> str:
    far = {name: size for name, size in needs.download_bytes.items() if name not in needs.local}
    unknown = [name for name, size in far.items() if size is None]
    text = f"downloads   {sum(size or 0 for size in far.values()) / MEBI:.0f} MiB in {len(far)} archives"
    text += f" ({len(unknown)} of unknown size: {', '.join(unknown)})" if unknown else ""
    return text + (f"; {len(needs.local)} more are in a mirror folder" if needs.local else "")


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _disk(needs: Forecast) -> str:
    total = sum(needs.embedding_bytes.values()) / GIBI
    guess = f" ({_some(needs.assumed)}: taken as {USUAL_DIMENSION} wide until imported)" if needs.assumed else ""
    packed = sum(size or 0 for size in needs.download_bytes.values())
    kept = (
        packed * UNPACKED + sum(size or 0 for n, size in needs.download_bytes.items() if n not in needs.local)
    ) / GIBI
    return (
        f"embeddings  {total:.3f} GiB{guess}\ndisk        {total + kept:.2f} GiB with archives, collections and indexes"
    )
