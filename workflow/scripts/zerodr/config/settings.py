"""Settings of `config/config.yaml`, `config/protocols.yaml` and `config/scales.yaml`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from zerodr.config.base import LARGEST_SEED, Settings
from zerodr.config.counterparts import OtherStart
from zerodr.config.generation import WriterSettings
from zerodr.config.loose_files import COLUMNS, CUT, Columns, Cut
from zerodr.config.measures import MeasureName


class Lengths(Settings):
    """Token limits, special tokens included. None: the model's own."""

    query_tokens: int | None = Field(None, ge=2)
    """Longest query; the rest is cut."""
    document_tokens: int | None = Field(None, ge=2)
    """Longest document; the rest is cut."""


class Protocol(Lengths):
    """How texts are encoded and scored. Part of every path that depends on it."""

    retired: ClassVar = {"title_join": "registry", "collection_lengths": "never"}
    description: str
    """Where the protocol comes from."""
    depth: int = Field(1000, ge=1)
    """Documents in a ranking."""
    exclude_self: Literal["registry", "never"] = "registry"
    """`registry`: as the collection's block says, once, at search time, with depth + 1 retrieval."""
    overrides: dict[str, Lengths] = Field(default_factory=dict)
    """Lengths for single collections."""


class Scale(Settings):
    """A size preset."""

    description: str
    """Its size and what it costs."""
    collections: tuple[str, ...]
    """Columns of results/beir/all.tsv: names or groups of the registry."""
    methods: dict[str, tuple[str, ...]]
    """Rows of results/beir/all.tsv by family; a family's name is printed above its rows."""
    source: str
    """The collection with supervision, and the reference of corpus statistics."""
    shard_documents: int = Field(ge=1)
    """Documents of one embedding shard."""
    gpus: int = Field(0, ge=0)
    """GPUs that one training job asks for, other GPU jobs one each; 0: none (one that it sees is used)."""
    jobs_at_once: int = Field(1, ge=1)
    """Jobs that share the cores of the machine. Short jobs, which mostly load libraries, end sooner side by side."""
    statistics_documents: int = Field(ge=1)
    """Documents that vocabulary statistics read at most."""
    as_published: bool = False
    """Sizes are those of the papers: items are planned on their papers' collections and protocols, and trained rows are
    compared with published values."""

    @property
    def families(self) -> dict[str, str]:
        """The family of each row, in the order of the table."""
        return {row: family for family, rows in self.methods.items() for row in rows}


class Reference(Settings):
    """A file of published, or independent, numbers to compare with."""

    path: str
    """A tsv; `zerodr.reporting.published` describes its format."""
    source: str
    """Where the numbers come from; a row's source replaces it."""
    tolerance: float = Field(gt=0)
    """Largest absolute difference with the verdict OK."""


class Config(Settings):
    """The file most users edit. Everything can be given on the command line too: `--config scale=lab`."""

    scale: str = "mini"
    """A preset of config/scales.yaml. With a profile that submits to Slurm, the default is `paper`."""
    methods: tuple[str, ...] | None = Field(None, min_length=1)
    """Rows of the main table: `recipe` or `recipe+variant`. None: the scale's."""
    collections: tuple[str, ...] | None = Field(None, min_length=1)
    """Columns of the main table, which is then results/beir/<names joined by +>.tsv: in any order, and where they have
    more than 80 letters the run says the short name under which it writes them. None: the scale's, and all.tsv."""
    set: tuple[str, ...] = ()
    """Changed settings of methods: `dpr.training.batch_queries=256` is a variant of dpr, a row next to it; values with
    commas between them are a row each. `training.batch_queries` is that of each stage, `ep0.training...` of one,
    and of those that are `like` it or repeat it."""
    protocol: str = "standard"
    """A protocol of config/protocols.yaml."""
    source: str | None = None
    """The collection with supervision. None: the scale's."""
    mirrors: tuple[str, ...] = ()
    """Folders with archives, tried in order before the official addresses. After them come those that the environment
    variable ZERODR_MIRRORS names, separated by colons; where it is not set, `../shared/collections`."""
    offline: bool = False
    """Never ask the network: archives come from mirrors, models from folders, packages and the hub cache."""
    warm_start: bool = True
    """Fork the jobs of a local run from one process that has imported their libraries (Linux). false: each job
    imports them."""
    revisions: dict[str, str] = Field(default_factory=dict)
    """Commits of hub models by name, such as `{Luyu/condenser: <commit>}`. They replace those of recipes."""
    gated: tuple[str, ...] = ()
    """Gated collections whose archives you have in a mirror."""
    byo: tuple[str, ...] = ()
    """Your own collections: folders or files, separated by commas. Each is named like its folder."""
    byo_name: str | None = None
    """Name of your own collection, where `byo` is one folder. None: the folder's."""
    byo_language: str | None = None
    """Language of your own folders, one of LANGUAGES. None: guessed from the script of their documents."""
    byo_columns: Columns = COLUMNS
    """Columns of text, title and id in the tables among your own files. Empty: by their names and lengths."""
    byo_cut: Cut = CUT
    """How long texts among your own files (txt, md, html, pdf, docx) are cut into passages."""
    byo_drop_missing: bool = False
    """In your own folders, drop judgements of absent documents and queries instead of refusing the folder."""
    byo_exclude_self: bool = False
    """In your own folders, leave the document with the query's own id out of its ranking: queries that are documents
    would find themselves."""
    candidates: tuple[str, ...] = ()
    """Methods that `zerodr adapt` compares, those that learn nothing from your documents first."""
    start: OtherStart | None = None
    """A model that `zerodr adapt` starts from in place of all-MiniLM-L6-v2."""
    held_out: int = Field(0, ge=0)
    """Titles, and sentences, that are held out of your folder as queries whose document is known: a proxy for
    judgements. 0: none."""
    held_out_questions: int = Field(0, ge=0)
    """Questions that `question_writer` writes about documents, as further such queries. 0: none."""
    question_writer: WriterSettings | None = None
    """The language model that writes them. Below `round_trip` is null: BM25 must not choose what it is compared on."""
    judged: str | None = None
    """A `to_judge.tsv` of `zerodr adapt` with your grades."""
    retained: dict[str, str] = {}
    """Copies that take the place of models and known items, by their paths: what `zerodr adapt` chose before documents
    changed, and checks on them. It fills this in."""
    rehearse: bool = False
    """Run each job with few steps, documents and questions, in the folder `rehearsal/` (docs/cluster.md)."""
    substitutes: bool = False
    """Archives are the small ones that `zerodr rehearse --stand-ins` writes: checksums of the registry do not count."""
    seed: int = Field(13, ge=0, le=LARGEST_SEED)
    """Source of every random choice."""
    seeds: tuple[Annotated[int, Field(ge=0, le=LARGEST_SEED)], ...] = ()
    """Further seeds: the main table has a row for each, and the mean with its interval over seeds and queries below;
    `results/lab/*.html` average over them. `--config seeds=14,15`."""
    shard_documents: int | None = Field(None, ge=1)
    """Documents of one embedding shard. None: the scale's."""
    gpus: int | None = Field(None, ge=0)
    """GPUs that one training job asks for, others one each; 0: none (one that it sees is used). None: the scale's."""
    gpu_partition: str | None = None
    """Slurm partition of all jobs that ask for a GPU, where the default partition has none."""
    nodes: int = Field(1, ge=1)
    """Machines of one training job, which share its GPUs equally; more than one need --profile slurm."""
    bootstrap_samples: int = Field(1000, ge=40, le=100_000)
    """Resamples of the bootstrap intervals of measures; those of differences have 20,000 subsets of the queries."""
    randomization_samples: int = Field(10000, ge=40, le=10_000_000)
    """Permutations of the randomisation test."""
    measures: tuple[MeasureName, ...] = ()
    """Measures of the tables, such as `[ndcg_cut_20, recall_20]`: the first one is in the main table's cells and tests,
    the others in tables below it, and all next to those of papers' items. Without any: nDCG@10."""
    baseline: str = "bm25-flat"
    """Significance is tested against this method."""
    references: tuple[Reference, ...] = (
        Reference(path="resources/reference/pyserini_beir.tsv", source="Pyserini, BEIR v1.0.0", tolerance=0.0005),
        Reference(path="resources/reference/minilm_beir.tsv", source="independent script; MTEB", tolerance=0.001),
    )
    """Numbers that the table is compared with, besides those that papers print."""

    @model_validator(mode="after")
    def _seeds_differ(self) -> Config:
        if len({self.seed, *self.seeds}) <= len(self.seeds):
            raise ValueError(f"seeds {list(self.seeds)} and seed {self.seed} name one seed twice: name each once")
        return self
