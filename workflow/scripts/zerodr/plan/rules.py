"""List the facts of each rule: its function, kind of work, what a job needs, what its time and memory follow from.

No other module compares names of rules: `facts_of("finetune").trains` answers. Raise the version of a function, or of
an addition, when its results change: what it wrote and what depends on that is built again. A function that moves keeps
its results, because its address is no part of a stage's identity. Papers add their rules and versions.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Kind = Literal[
    "fetch",  # download
    "prepare",  # a collection of the registry: one format, statistics
    "import",  # a user's files, a model or a run made elsewhere
    "index",
    "search",
    "merge",  # results of shards
    "fuse",  # rankings of several models
    "embed",
    "augment",  # queries by documents
    "sample",
    "generate",
    "mine",
    "cut",  # texts into spans or units
    "annotate",
    "cluster",
    "score",  # pairs, by a teacher
    "init",
    "pretrain",  # on texts alone
    "train",
    "assemble",  # a model from others
    "export",
    "evaluate",
    "judge",
    "measure",
    "report",  # tables, figures and pages
    "publish",
    "other",
]


class Need(NamedTuple):
    """Needs of one job. Schedulers read them; they are never part of a digest.

    Attributes:
        base_mib: memory whatever the collection's size.
        mib_per_million: memory for each million documents that the job reads.
        base_minutes: time whatever the size.
        minutes_per_million: time for each million documents.
        threads: cores it can use.
        gpu: whether it runs on the scale's GPUs.
        sharded: whether it reads one shard of a collection.
        resumes: whether another attempt continues where one stopped, so that it needs no more time than the first.
    """

    base_mib: int = 1000
    mib_per_million: int = 0
    base_minutes: int = 10
    minutes_per_million: int = 0
    threads: int = 1
    gpu: bool = False
    sharded: bool = False
    resumes: bool = False


class Rule(NamedTuple):
    """Facts of a rule.

    Attributes:
        function: `module:function` below `zerodr`.
        kind: of its work.
        need: what a job asks the scheduler for; None: no more than any job, whose time is that of its start.
        seeded: whether it draws random numbers.
        reads: sections of a collection that it reads, which are artifacts of their own in a user's folder.
        time: what a job's time grows with: documents that it reads, queries of its split, queries (or texts) of all
            steps of a training, or pairs that a teacher scores.
        memory: what a job's memory follows from: what it asks for and the size of its collection, the network and
            batches of a training, or lists that are mined.
        writes: what it writes, where that is a large thing that others recognise.
        questions: the setting that counts the questions that a language model writes in a job; empty: none.
        temporary: whether Snakemake removes its output after the last use.
        downloads: whether it may ask servers outside; the others work offline.
        behind: how far its version is behind that of its function, for a rule that its first changes did not touch.
        brief: whether it is worth no job of a scheduler, although it needs more than any job.
    """

    function: str
    kind: Kind
    need: Need | None = None
    seeded: bool = False
    reads: Literal["corpus", "queries", "all"] = "all"
    time: Literal["documents", "queries", "training", "pairs"] = "documents"
    memory: Literal["request", "training", "mining"] = "request"
    writes: Literal["", "archive", "collection", "index", "embeddings", "run", "model"] = ""
    questions: str = ""
    temporary: bool = False
    downloads: bool = False
    brief: bool = False
    behind: int = 0

    @property
    def version(self) -> int:
        """Version of the results, without that of additions."""
        return VERSIONS.get(self.function, 1) - self.behind

    @property
    def embeds(self) -> bool:
        """True where it embeds texts with a model."""
        return self.kind == "embed"

    @property
    def trains(self) -> bool:
        """True where it trains a model by optimisation steps, on all GPUs and in several processes."""
        return self.kind in ("train", "pretrain")

    @property
    def light(self) -> bool:
        """True where a job's time is that of its start."""
        return self.need is None

    @property
    def local(self) -> bool:
        """True where a job runs next to Snakemake: it is light or brief, or needs a way to the internet."""
        return self.light or self.brief or self.downloads


def encoding(mib: int, per_million: int, minutes: int, minutes_per_million: int = 0, sharded: bool = False) -> Need:
    """Needs of a rule that runs a model over texts, and resumes."""
    return Need(mib, per_million, minutes, minutes_per_million, threads=8, gpu=True, sharded=sharded, resumes=True)


def training(function: str, mib: int, minutes: int, kind: Literal["train", "pretrain"] = "train", **facts: str) -> Rule:
    """Facts of a rule that trains a model on all GPUs, and resumes."""
    need = Need(mib, 0, minutes, threads=8, gpu=True, resumes=True)
    return Rule(function, kind, need, seeded=True, time="training", writes="model", **facts)  # type: ignore[arg-type]


VERSIONS = {
    "collections.user_folders:normalize_corpus": 5,
    "retrieval.embed:embed_corpus": 2,
    "retrieval.embed:embed_queries": 2,
    "mining.held_out:hold_out_items": 4,
    "mining.questions:generate_queries": 3,
    "mining.spans:cut_spans": 2,
    "training.pretrain:pretrain": 4,
    "training.kinds:init_model": 2,
    "encoders.publishing.adapted:export_adapted": 4,
    "training.teaching.scoring:score_pairs": 2,
    "evaluation.compare:compare_runs": 2,
    "evaluation.evaluate:evaluate_run": 2,
    "evaluation.judge_adaptation:judge_adaptation": 6,
    "reporting.table:build_table": 7,
    "reporting.figure:plot_table": 4,
    "reporting.items:build_item": 7,
    "reporting.item_tables:plot_item": 4,
    "reporting.items:build_paper": 2,
    "reporting.items:build_published": 4,
    "pages.adapted:build_adapted_page": 6,
    "pages.leaderboard:build_leaderboard": 3,
}
"""Versions of functions' results, for all rules that run them; 1 where none is listed. Papers add theirs."""

ADDITIONS = {"keep_index": 1}
"""Versions of what a key of a stage's settings, or `objective.<name>`, adds to its training. Papers add theirs.

A version counts only in the jobs whose stage has the key, so that a changed loss trains no other model again.
"""

RULES = {
    "fetch_archive": Rule(
        "collections.fetch:fetch_archive", "fetch", Need(500, 0, 120, 30), writes="archive", downloads=True
    ),
    "normalize_collection": Rule(
        "collections.normalize:normalize_collection", "prepare", Need(2000, 500, 20, 20), writes="collection"
    ),
    "transform_collection": Rule(
        "collections.transform:transform_collection",
        "prepare",
        Need(4000, 500, 20, 20),
        seeded=True,
        writes="collection",
    ),
    "normalize_corpus": Rule(
        "collections.user_folders:normalize_corpus", "import", Need(2000, 500, 20, 20), writes="collection"
    ),
    "normalize_queries": Rule("collections.user_folders:normalize_queries", "import", Need(2000, 100, 20, 20)),
    "normalize_judgements": Rule(
        "collections.user_folders:normalize_judgements", "import", Need(2000, 100, 20, 20), reads="queries"
    ),
    "measure_statistics": Rule(
        "collections.statistics:measure_statistics", "prepare", Need(2000, 1000, 20, 20, threads=2)
    ),
    "index_bm25": Rule("lexical.index:index_bm25", "index", Need(6000, 2500, 15, 30), reads="corpus", writes="index"),
    "search_bm25": Rule(
        "lexical.search:search_bm25", "search", Need(6000, 200, 30, 30, threads=8), reads="queries", writes="run"
    ),
    "import_model": Rule(
        "encoders.start.importing:import_model", "import", Need(4000, 0, 60), writes="model", downloads=True
    ),
    "embed_corpus": Rule(
        "retrieval.embed:embed_corpus",
        "embed",
        encoding(6000, 3500, 30, 120, sharded=True),
        reads="corpus",
        writes="embeddings",
    ),
    "embed_queries": Rule(
        "retrieval.embed:embed_queries", "embed", encoding(4000, 0, 30), reads="queries", writes="embeddings"
    ),
    "learn_attention": Rule("retrieval.learn_attention:learn_attention", "augment", Need(6000, 8000, 30), seeded=True),
    "augment_queries": Rule("retrieval.feedback:augment_queries", "augment", Need(4000, 0, 15), reads="queries"),
    "search_shard": Rule(
        "retrieval.search:search_shard",
        "search",
        Need(4000, 6500, 20, 60, threads=8, gpu=True, sharded=True),
        reads="queries",
    ),
    "merge_run": Rule("retrieval.merge:merge_run", "merge", Need(4000, 100, 15, 5), reads="queries", writes="run"),
    "fuse_runs": Rule("retrieval.fuse:fuse_runs", "fuse", Need(4000, 0, 15), reads="queries", writes="run"),
    "import_run": Rule(
        "retrieval.imported:import_run", "import", Need(4000, 1000, 15, 5), reads="queries", writes="run"
    ),
    "sample_queries": Rule("mining.sample:sample_queries", "sample", Need(4000, 0, 30), seeded=True),
    "rank_bm25": Rule("lexical.search:rank_bm25", "search", Need(4000, 4000, 30, 30, threads=8)),
    "search_candidates": Rule(
        "retrieval.search:search_shard",
        "search",
        Need(4000, 6500, 30, 120, threads=8, gpu=True, sharded=True),
        temporary=True,
    ),
    "merge_candidates": Rule("retrieval.merge:merge_candidates", "merge", Need(6000, 100, 30, 10)),
    "hold_out_items": Rule(
        "mining.held_out:hold_out_items",
        "sample",
        Need(6000, 4000, 60, 60, threads=8),
        seeded=True,
        reads="corpus",
        questions="questions",
    ),
    "generate_queries": Rule(
        "mining.questions:generate_queries",
        "generate",
        encoding(8000, 500, 480),
        seeded=True,
        reads="corpus",
        questions="count",
    ),
    "fuse_candidates": Rule("retrieval.fuse:fuse_candidates", "fuse", Need(4000, 100, 30, 30)),
    "mine_negatives": Rule("mining.mine:mine_negatives", "mine", Need(8000, 0, 60), seeded=True, memory="mining"),
    "cut_spans": Rule("mining.spans:cut_spans", "cut", Need(4000, 500, 30, 30, threads=8), seeded=True, reads="corpus"),
    "pretrain": training("training.pretrain:pretrain", 16000, 2880, "pretrain", memory="training", reads="corpus"),
    "init_model": Rule(
        "training.kinds:init_model", "init", Need(6000, 0, 60), seeded=True, writes="model", downloads=True
    ),
    "finetune": training("training.finetune:finetune", 12000, 1440, memory="training"),
    "take_step": Rule("encoders.publishing.export:take_step", "assemble", writes="model"),
    "export_model": Rule("encoders.publishing.export:export_model", "export", Need(6000, 0, 30), writes="model"),
    "export_adapted": Rule(
        "encoders.publishing.adapted:export_adapted", "export", Need(6000, 500, 30, 10), writes="model"
    ),
    "score_pairs": Rule("training.teaching.scoring:score_pairs", "score", encoding(8000, 0, 1440), time="pairs"),
    "evaluate_run": Rule("evaluation.evaluate:evaluate_run", "evaluate", Need(3000, 0, 15), seeded=True),
    "judge_adaptation": Rule("evaluation.judge_adaptation:judge_adaptation", "judge", Need(3000, 0, 15), seeded=True),
    "compare_runs": Rule("evaluation.compare:compare_runs", "report", Need(4000, 0, 30), seeded=True),
    "build_table": Rule("reporting.table:build_table", "report"),
    "build_row": Rule("reporting.table:build_table", "report", behind=2),
    "build_queries": Rule("pages.queries:build_queries", "report", Need(6000, 0, 60)),
    "build_query_page": Rule("pages.queries:build_query_page", "report"),
    "build_leaderboard": Rule("pages.leaderboard:build_leaderboard", "report"),
    "plot_table": Rule("reporting.figure:plot_table", "report", seeded=True),
    "build_item": Rule("reporting.items:build_item", "report", seeded=True),
    "plot_item": Rule("reporting.item_tables:plot_item", "report"),
    "build_paper": Rule("reporting.items:build_paper", "report"),
    "build_published": Rule("reporting.items:build_published", "report"),
    "build_adapted_page": Rule("pages.adapted:build_adapted_page", "report"),
    "publish_lineage": Rule("lineage.publish:publish_lineage", "publish"),
}

OTHER = Rule("", "other")


def facts_of(name: str) -> Rule:
    """Return the facts of a rule; of `all`, and of a rule that only an old record names, facts that claim nothing."""
    return RULES.get(name, OTHER)


def names(kind: Kind, writes: str | None = None) -> list[str]:
    """List the rules of a kind, and with `writes` those of them that write it."""
    return [name for name, facts in RULES.items() if facts.kind == kind and writes in (None, facts.writes)]


def version_of(name: str, params: Mapping[str, Any]) -> int:
    """Version of a job's results: that of the function, plus how far those of its stage's additions are above 1.

    Args:
        name: of the rule.
        params: of the job; `settings` are those of its stage.
    """
    facts, stage = RULES[name], params.get("settings", {})
    if not facts.trains:
        return facts.version
    used = [*stage, f"objective.{stage['objective']['name']}"]
    return facts.version + sum(ADDITIONS.get(key, 1) - 1 for key in used)
