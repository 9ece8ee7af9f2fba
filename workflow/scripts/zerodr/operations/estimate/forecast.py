"""Forecast the needs of a target from Snakemake's dry run and the registry's sizes."""

import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from zerodr.artifacts.guard import OURS, plainly
from zerodr.config.families import PACKAGE, SCRATCH, line_of
from zerodr.config.methods import EncoderMethod, TrainedMethod
from zerodr.config.registry import Collection
from zerodr.config.training import InitSettings
from zerodr.errors import ConfigError
from zerodr.plan import Plan
from zerodr.plan.collections import archive_row
from zerodr.plan.dense import model_of
from zerodr.plan.memory import Network
from zerodr.plan.targets import is_target, nearest_target

TRIGGERS, CHECKSUM_BYTES = ("mtime", "params", "input"), 10**8  # as the profiles have them
RULE = re.compile(r"^(?:local)?rule (\w+):$")
WILDCARDS = re.compile(r"^    wildcards: (.+)$")
FILES = re.compile(r"^    (input|output): (.+)$")
MEBI, GIBI = 2**20, 2**30
USUAL_DIMENSION, USUAL_LAYERS = 768, 12
USUAL_NETWORK = Network(USUAL_DIMENSION, USUAL_LAYERS, 12, 30522)  # BERT-base
FLOAT_BYTES = 4
MOST_NAMES = 5
MOST_SHARDS = 8
EMBEDDING = ("embed_corpus", "embed_queries", "embed_memory", "embed_memory_queries", "embed_fused_queries")
TEXT = ("normalize_collection", "normalize_corpus", "index_bm25")
UNPACKED = 2  # estimated size of a normalised collection, or of its index, in units of its archive
DOCUMENT_BYTES = 1000  # estimate for a document in a normalised collection or an index; BEIR's small ones: 500 to 1,400


@dataclass(frozen=True)
class Job:
    """One planned job: its rule, wildcards, and the files that it reads and writes."""

    rule: str
    wildcards: dict[str, str]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Forecast:
    """The needs of jobs.

    Attributes:
        jobs: number of jobs by rule, in the order of the plan.
        shards: embedding shards by `model/collection`.
        download_bytes: size by archive; None when the registry does not know it.
        local: archives in a mirror folder.
        unpinned: archives without a checksum.
        embedding_bytes: size of embeddings by model.
        assumed: models whose dimension is unknown yet and estimated as USUAL_DIMENSION.
        text_bytes: size of normalised collections and their indexes.
        largest: by rule, MiB of memory and bytes on disk of its largest job; 0 bytes when negligible.
        gpu_jobs: jobs that run on a GPU.
    """

    jobs: dict[str, int]
    shards: dict[str, int]
    download_bytes: dict[str, int | None]
    local: tuple[str, ...]
    unpinned: tuple[str, ...]
    embedding_bytes: dict[str, int]
    assumed: tuple[str, ...]
    text_bytes: int
    largest: dict[str, tuple[int, int]]
    gpu_jobs: int


def dry_run(target: str, config: list[str], plan: Plan) -> list[Job]:
    """List the jobs that Snakemake would run for a target; `plan` is the plan of the `config` words.

    Raises:
        ConfigError: Snakemake refuses the target or the configuration; the message repeats its reason.
    """
    command = [sys.executable, "-m", "snakemake", target, "--dry-run", "--nolock", "--cores", "1"]
    command += ["--rerun-triggers", *TRIGGERS, "--max-checksum-file-size", str(CHECKSUM_BYTES)]
    command += ["--config", *config] if config else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        reason = next((line for line in lines if re.match(r"\w*Error: ", line)), lines[-1] if lines else "no output")
        reason = plainly(reason).split(" (if ")[0].rstrip(".")
        if OURS.match(reason):  # it contains the next step
            raise ConfigError(target, f"can't be planned: {OURS.sub('', reason, count=1)}")
        step = f"see: snakemake -n {target}" if is_target(target, plan) else nearest_target(target, plan)
        raise ConfigError(target, f"can't be planned: {reason}", step)
    return parse_jobs(done.stdout + done.stderr)


def parse_jobs(output: str) -> list[Job]:
    """Parse the jobs of a dry run's output, in its order."""
    jobs: list[Job] = []
    for line in output.splitlines():
        if rule := RULE.match(line):
            jobs.append(Job(rule.group(1), {}))
        elif (files := FILES.match(line)) and jobs:
            paths = tuple(files.group(2).split(", "))
            written = files.group(1) == "output"
            jobs[-1] = replace(jobs[-1], outputs=paths) if written else replace(jobs[-1], inputs=paths)
        elif (wildcards := WILDCARDS.match(line)) and jobs:
            pairs = (pair.partition("=") for pair in wildcards.group(1).split(", "))
            jobs[-1].wildcards.update({name: value for name, _, value in pairs})
    return jobs


def forecast(jobs: list[Job], plan: Plan) -> Forecast:
    """Estimate the sizes of the jobs' downloads and outputs."""
    archives = [job.wildcards["archive"] for job in jobs if job.rule == "fetch_archive"]
    embeds = [job.wildcards for job in jobs if job.rule in EMBEDDING]
    scopes = {wc["model"]: wc["scope"] for wc in embeds}
    shapes = {name: model_shape(plan, name, scope) for name, scope in scopes.items()}
    dimensions = {name: shape and shape[0] for name, shape in shapes.items()}
    sizes: Counter[str] = Counter()
    text, largest = 0, dict[str, tuple[int, int]]()
    for job in jobs:
        written = output_bytes(plan, job, dimensions)
        if job.rule in EMBEDDING:
            sizes[job.wildcards["model"]] += written
        text += written if job.rule in TEXT else 0
        memory, disk = largest.get(job.rule, (0, 0))
        needed = plan.machines.memory_mib(job.rule)(SimpleNamespace(**job.wildcards))
        largest[job.rule] = max(memory, needed), max(disk, written)
    corpus = Counter(f"{_model_of(wc)}/{wc['collection']}" for wc in embeds if "shard" in wc)
    return Forecast(
        jobs=dict(Counter(job.rule for job in jobs)),
        shards=dict(corpus),
        download_bytes={name: archive_row(plan, name).archive_bytes for name in archives},
        local=tuple(name for name in archives if in_mirror(plan, name)),
        unpinned=tuple(name for name in archives if is_unpinned(plan, archive_row(plan, name))),
        embedding_bytes=dict(sizes),
        assumed=tuple(sorted(name for name, dimension in dimensions.items() if dimension is None)),
        text_bytes=text,
        largest=largest,
        gpu_jobs=sum(plan.machines.gpus(job.rule) > 0 for job in jobs),
    )


def output_bytes(plan: Plan, job: Job, dimensions: Mapping[str, int | None]) -> int:
    """Estimate the bytes that a job writes: archives, collections, indexes, embeddings; 0 for other jobs."""
    if job.rule == "fetch_archive":
        return archive_row(plan, job.wildcards["archive"]).archive_bytes or 0
    if job.rule in EMBEDDING:
        return text_rows(plan, job.wildcards) * (dimensions[job.wildcards["model"]] or USUAL_DIMENSION) * FLOAT_BYTES
    if job.rule in TEXT:
        row = plan.collection(job.wildcards["collection"])
        by_archive = [UNPACKED * row.archive_bytes] if row.archive_bytes else []
        by_documents = [DOCUMENT_BYTES * row.planned_documents] if row.planned_documents else []
        return min(by_archive + by_documents, default=0)
    return 0


def _model_of(wildcards: Mapping[str, str]) -> str:
    """Return a model's name in the forecast: memories are embedded by one of its stages."""
    return f"{wildcards['model']}@{wildcards['stage']}" if "stage" in wildcards else wildcards["model"]


def text_rows(plan: Plan, wildcards: dict[str, str]) -> int:
    """Return the number of texts that an embedding job reads."""
    row = plan.collection(wildcards["collection"])
    if "shard" not in wildcards:
        return row.splits.get(wildcards["split"]) or row.queries or 0
    return -(-row.planned_documents // plan.shard_count(row.name))


def in_mirror(plan: Plan, archive: str) -> bool:
    """Test whether a mirror folder has the archive."""
    return any(Path(folder, archive).exists() for folder in plan.config.mirrors)


def is_unpinned(plan: Plan, row: Collection) -> bool:
    """True when no checksum fixes the content of what is fetched: a mirror's archive, or the publisher's files."""
    return not (row.checksums if in_mirror(plan, row.archive) else row.pinned)


def model_shape(plan: Plan, model: str, scope: str) -> tuple[int, int] | None:
    """Return width and layers of a model, from its folder, settings or initial model; None when unknown yet."""
    network = known_network(plan, model, scope)
    return None if network is None else (network.width, network.layers)


def network_of(plan: Plan, model: str, scope: str) -> Network:
    """Return the network of a model, USUAL_NETWORK where it is unknown yet."""
    return known_network(plan, model, scope) or USUAL_NETWORK


def known_network(plan: Plan, model: str, scope: str) -> Network | None:
    """Return the network of a model, from its folder, settings or initial model; None when unknown yet."""
    recipe, start, cut = model.partition("@")[0], "", None
    method = plan.bench.methods[recipe]
    if isinstance(method, EncoderMethod):
        start = method.settings.model
    elif isinstance(method, TrainedMethod):
        origin = line_of(recipe, plan.bench.methods)[-1]
        if isinstance(origin, InitSettings) and origin.init == SCRATCH:
            small = origin.architecture
            return Network(small.hidden, small.layers, small.heads, small.vocabulary, small.family == "t5")
        start, cut = origin.init, origin.layers
    for folder in [*_built(plan, model, scope), *(_model_folders(start) if start else ())]:
        if (folder / "config.json").exists():
            network = _network(json.loads((folder / "config.json").read_text()))
            return network and network._replace(layers=int(cut or network.layers))
    return None


def _network(config: dict[str, Any]) -> Network | None:
    """Read the network of a model's config.json; None where it has no width."""

    def number(*names: str, usual: int) -> int:
        return int(next((config[name] for name in names if config.get(name)), usual))

    width, usual = number("hidden_size", "d_model", "dim", usual=0), USUAL_NETWORK
    if not width:
        return None
    return Network(
        width,
        number("num_hidden_layers", "num_layers", "n_layers", usual=usual.layers),
        number("num_attention_heads", "num_heads", "n_heads", usual=usual.heads),
        number("vocab_size", usual=usual.vocabulary),
        bool(config.get("is_encoder_decoder")),
    )


def _built(plan: Plan, model: str, scope: str) -> list[Path]:
    """Folder of the model that ranks in a scope; none where a recipe shares its first stages alone."""
    try:
        return [Path(model_of(plan, model, scope)).parent] if plan.bench.methods[model.partition("@")[0]].ranks else []
    except ConfigError:
        return []


def _model_folders(name: str) -> list[Path]:
    """List the folders of the model that a method names: inside a Python package, or the path itself."""
    if not name.startswith(PACKAGE):
        return [Path(name)]
    spec = importlib.util.find_spec(name.removeprefix(PACKAGE))
    homes = spec.submodule_search_locations if spec else None
    return [Path(home) / "model" for home in homes or ()]


def render(target: str, needs: Forecast) -> str:
    """Format the forecast as text."""
    if not needs.jobs:
        return f"{target}: nothing to be done"
    width = max(len(rule) for rule in needs.jobs)
    jobs = counted(sum(needs.jobs.values()), "job")
    lines = [f"{target} needs {jobs} (memory and disk of the largest one of a rule):"]
    for rule, count in needs.jobs.items():
        memory, disk = needs.largest[rule] if rule != "all" else (0, 0)
        written = f"{disk / MEBI:>9.0f} MiB of disk" if disk else ""
        lines.append(f"  {rule:<{width}}  {count:>7}  {memory:>7} MiB  {written}".rstrip())
    sharded = dict(Counter({name: count for name, count in needs.shards.items() if count > 1}).most_common(MOST_SHARDS))
    lines.append(
        f"shards      {sum(needs.shards.values())} for {counted(len(needs.shards), 'pair')} of model and collection"
        + "".join(f"\n            {name}: {count}" for name, count in sharded.items())
    )
    lines += [_downloads(needs), _disk(needs)]
    lines.append(f"memory      {max(memory for memory, _ in needs.largest.values())} MiB for the largest job")
    lines.append(f"GPU         for {counted(needs.gpu_jobs, 'job')}" if needs.gpu_jobs else "GPU         not needed")
    return "\n".join(lines)


def _downloads(needs: Forecast) -> str:
    far = {name: size for name, size in needs.download_bytes.items() if name not in needs.local}
    unknown = [name for name, size in far.items() if size is None]
    text = f"downloads   {sum(size or 0 for size in far.values()) / MEBI:.0f} MiB in {counted(len(far), 'archive')}"
    text += f" ({len(unknown)} of unknown size: {', '.join(unknown)})" if unknown else ""
    text += f"; {len(needs.local)} more are in a mirror folder" if needs.local else ""
    return text + (f"; not pinned by a checksum: {first_names(needs.unpinned)}" if needs.unpinned else "")


def counted(number: int, noun: str) -> str:
    """Format a number with its noun: `1 job`, `2 jobs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_names(names: Sequence[str]) -> str:
    """List the first names, and the number of further ones."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _disk(needs: Forecast) -> str:
    total = sum(needs.embedding_bytes.values()) / GIBI
    guess = (
        f" ({USUAL_DIMENSION} dimensions assumed for models that do not exist yet: {first_names(needs.assumed)})"
        if needs.assumed
        else ""
    )
    packed = sum(size or 0 for name, size in needs.download_bytes.items() if name not in needs.local)
    texts = (needs.text_bytes + packed) / GIBI
    return (
        f"embeddings  {total:.3f} GiB{guess}\ndisk        {total + texts:.2f} GiB with archives, collections and "
        "indexes; without models and checkpoints"
    )
