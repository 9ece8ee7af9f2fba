"""Estimate what jobs download and write, from the sizes of the registry and of networks."""

import importlib.util
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage
from typing import Any

from zerodr.config.methods import EncoderMethod, TrainedMethod
from zerodr.config.quantities import GIBI, MEBI, counted, first_names
from zerodr.config.registry import Collection
from zerodr.config.starts import PACKAGE, SCRATCH, line_of
from zerodr.config.training import InitSettings
from zerodr.errors import ConfigError
from zerodr.operations.estimate.jobs import Job
from zerodr.plan import Plan
from zerodr.plan.collections import archive_row
from zerodr.plan.dense import model_of
from zerodr.plan.memory import FLOAT_BYTES, Network

BERT_BASE = Network(768, 12, 12, 30522)  # of models whose folder is not here yet


def network_of(plan: Plan, model: str, scope: str) -> Network:
    """Return the network of a model, BERT_BASE where it is unknown yet."""
    return known_network(plan, model, scope) or BERT_BASE


def known_network(plan: Plan, model: str, scope: str) -> Network | None:
    """Return the network of a model; None when unknown yet."""
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
            network = _network(json.loads((folder / "config.json").read_text(encoding="utf-8")))
            return network and network._replace(layers=int(cut or network.layers))
    return None


def _network(config: dict[str, Any]) -> Network | None:
    """Read the network of a model's config.json; None where it has no width."""

    def number(*names: str, usual: int) -> int:
        return int(next((config[name] for name in names if config.get(name)), usual))

    width = number("hidden_size", "d_model", "dim", usual=0)
    if not width:
        return None
    return Network(
        width,
        number("num_hidden_layers", "num_layers", "n_layers", usual=BERT_BASE.layers),
        number("num_attention_heads", "num_heads", "n_heads", usual=BERT_BASE.heads),
        number("vocab_size", usual=BERT_BASE.vocabulary),
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


MOST_SHARDS = 8
MORE_ROOM = "free space, or: ln -s /larger/disk results"
TEXT = ("collection", "index")  # what rules write that is as large as a collection's texts
UNPACKED = 2  # estimated size of a normalised collection, or of its index, in units of its archive
DOCUMENT_BYTES = 1000  # estimate for a document in a normalised collection or an index; BEIR's small ones: 500 to 1,400


@dataclass(frozen=True)
class Sizes:
    """Sizes of what jobs need.

    Attributes:
        jobs: number of jobs by rule, in the order of the plan.
        shards: embedding shards by `model/collection`.
        download_bytes: size by archive; None when the registry does not know it.
        local: archives in a mirror folder.
        unpinned: archives without a checksum.
        embedding_bytes: size of embeddings by model.
        assumed: models whose dimension is unknown yet and estimated as that of BERT_BASE.
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


def sizes_of(jobs: list[Job], plan: Plan) -> Sizes:
    """Estimate the sizes of the jobs' downloads and outputs."""
    archives = [job.wildcards["archive"] for job in jobs if job.facts.writes == "archive"]
    embeds = [job.wildcards for job in jobs if job.facts.embeds]
    scopes = {wc["model"]: wc["scope"] for wc in embeds}
    networks = {name: known_network(plan, name, scope) for name, scope in scopes.items()}
    widths = {name: (network or BERT_BASE).width for name, network in networks.items()}
    embedded, text, largest = Counter[str](), 0, dict[str, tuple[int, int]]()
    for job in jobs:
        written = output_bytes(plan, job, widths)
        if job.facts.embeds:
            embedded[job.wildcards["model"]] += written
        text += written if job.facts.writes in TEXT else 0
        memory, disk = largest.get(job.rule, (0, 0))
        largest[job.rule] = max(memory, plan.machines.memory_mib(job.rule)(job.asked)), max(disk, written)
    corpus = Counter(f"{_model_of(wc)}/{wc['collection']}" for wc in embeds if "shard" in wc)
    return Sizes(
        jobs=dict(Counter(job.rule for job in jobs)),
        shards=dict(corpus),
        download_bytes={name: archive_row(plan, name).archive_bytes for name in archives},
        local=tuple(name for name in archives if in_mirror(plan, name)),
        unpinned=tuple(name for name in archives if is_unpinned(plan, archive_row(plan, name))),
        embedding_bytes=dict(embedded),
        assumed=tuple(sorted(name for name, network in networks.items() if network is None)),
        text_bytes=text,
        largest=largest,
        gpu_jobs=sum(plan.machines.gpus(job.rule) > 0 for job in jobs),
    )


def output_bytes(plan: Plan, job: Job, widths: Mapping[str, int]) -> int:
    """Estimate the bytes that a job writes: archives, collections, indexes, embeddings; 0 for other jobs."""
    if job.facts.writes == "archive":
        return archive_row(plan, job.wildcards["archive"]).archive_bytes or 0
    if job.facts.embeds:
        return text_rows(plan, job.wildcards) * widths[job.wildcards["model"]] * FLOAT_BYTES
    if job.facts.writes in TEXT:
        row = plan.collection(job.wildcards["collection"])
        by_archive = [UNPACKED * row.archive_bytes] if row.archive_bytes else []
        by_documents = [DOCUMENT_BYTES * row.planned_documents] if row.planned_documents else []
        return min(by_archive + by_documents, default=0)
    return 0


def _model_of(wildcards: Mapping[str, str]) -> str:
    """Return the name of a model in the list of shards: memories are embedded by one of its stages."""
    return f"{wildcards['model']}@{wildcards['stage']}" if "stage" in wildcards else wildcards["model"]


def text_rows(plan: Plan, wildcards: Mapping[str, str]) -> int:
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


def render(target: str, needs: Sizes) -> str:
    """Format the sizes as text."""
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
    lines += [_downloads(needs), disk_lines(needs)]
    lines.append(f"memory      {max(memory for memory, _ in needs.largest.values())} MiB for the largest job")
    lines.append(f"GPU         for {counted(needs.gpu_jobs, 'job')}" if needs.gpu_jobs else "GPU         not needed")
    return "\n".join(lines)


def _downloads(needs: Sizes) -> str:
    far = {name: size for name, size in needs.download_bytes.items() if name not in needs.local}
    unknown = [name for name, size in far.items() if size is None]
    text = f"downloads   {sum(size or 0 for size in far.values()) / MEBI:.0f} MiB in {counted(len(far), 'archive')}"
    text += f" ({len(unknown)} of unknown size: {', '.join(unknown)})" if unknown else ""
    text += f"; {len(needs.local)} more are in a mirror folder" if needs.local else ""
    return text + (f"; not pinned by a checksum: {first_names(needs.unpinned)}" if needs.unpinned else "")


def disk_lines(needs: Sizes) -> str:
    """Format what embeddings and texts take, with a sentence where the disk of results has less."""
    guess = ""
    if needs.assumed:
        models = first_names(needs.assumed)
        guess = f" ({BERT_BASE.width} dimensions assumed for models that do not exist yet: {models})"
    needed = written_bytes(needs)
    short = lack_of_room(needed)
    return (
        f"embeddings  {sum(needs.embedding_bytes.values()) / GIBI:.3f} GiB{guess}\ndisk        {needed / GIBI:.2f} GiB "
        f"with archives, collections and indexes; without models and checkpoints{short and f'{chr(10):<13}{short}'}"
    )


def written_bytes(needs: Sizes) -> int:
    """Return the size of all that jobs write and that can be estimated: no models, no checkpoints."""
    packed = sum(size or 0 for name, size in needs.download_bytes.items() if name not in needs.local)
    return sum(needs.embedding_bytes.values()) + needs.text_bytes + packed


def lack_of_room(needed_bytes: float, root: Path = Path()) -> str:
    """Return a sentence where the disk of results has less room than needed, empty where it has enough."""
    results = root / "results"
    free = disk_usage(results if results.exists() else root).free
    return "" if free >= needed_bytes else f"only {free / GIBI:.2f} GiB are free: {MORE_ROOM}"


def disk_warning(jobs: list[Job], plan: Plan) -> str:
    """Return the line of a run, and of `-n`, on planned jobs that write more than there is room for; empty without."""
    needed = written_bytes(sizes_of(jobs, plan))
    short = lack_of_room(needed)
    return short and f"Disk: the jobs write about {needed / GIBI:.2f} GiB and models, {short}"
