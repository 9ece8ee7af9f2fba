"""List the facts of each rule: its library function, the version of its results, random numbers, what a job needs.

Raise a version when the function's results change: every artifact of that rule and what depends on it is rebuilt. A
function that moves keeps its results, because its address is no part of a stage's identity. Papers add their rules.
"""

from typing import Literal, NamedTuple

from zerodr.plan.needs import Need, encoding, training


class Rule(NamedTuple):
    """Facts of a rule.

    Attributes:
        function: `module:function` below `zerodr`.
        version: of its results.
        need: what a job asks the scheduler for; None: no more than any job.
        seeded: whether it draws random numbers.
        reads: sections of a collection that it reads, which are artifacts of their own in a user's folder.
    """

    function: str
    version: int
    need: Need | None = None
    seeded: bool = False
    reads: Literal["corpus", "queries", "all"] = "all"


RULES = {
    "fetch_archive": Rule("collections.fetch:fetch_archive", 1, Need(500, 0, 120, 30)),
    "normalize_collection": Rule("collections.normalize:normalize_collection", 1, Need(2000, 500, 20, 20)),
    "normalize_corpus": Rule("collections.user_folders:normalize_corpus", 1, Need(2000, 500, 20, 20)),
    "normalize_queries": Rule("collections.user_folders:normalize_queries", 1, Need(2000, 100, 20, 20)),
    "normalize_judgements": Rule(
        "collections.user_folders:normalize_judgements", 1, Need(2000, 100, 20, 20), reads="queries"
    ),
    "measure_statistics": Rule("collections.statistics:measure_statistics", 1, Need(2000, 1000, 20, 20, threads=2)),
    "index_bm25": Rule("lexical.index:index_bm25", 1, Need(6000, 2500, 15, 30), reads="corpus"),
    "search_bm25": Rule("lexical.search:search_bm25", 1, Need(6000, 200, 30, 30, threads=8), reads="queries"),
    "import_model": Rule("encoders.start.importing:import_model", 1, Need(4000, 0, 60)),
    "embed_corpus": Rule(
        "retrieval.embed:embed_corpus", 2, encoding(6000, 3500, 30, 120, sharded=True), reads="corpus"
    ),
    "embed_queries": Rule("retrieval.embed:embed_queries", 2, encoding(4000, 0, 30), reads="queries"),
    "learn_attention": Rule("retrieval.learn_attention:learn_attention", 1, Need(6000, 8000, 30), seeded=True),
    "augment_queries": Rule("retrieval.feedback:augment_queries", 1, Need(4000, 0, 15)),
    "search_shard": Rule(
        "retrieval.search:search_shard", 1, Need(4000, 6500, 20, 60, threads=8, gpu=True, sharded=True), reads="queries"
    ),
    "merge_run": Rule("retrieval.merge:merge_run", 1, Need(4000, 100, 15, 5), reads="queries"),
    "fuse_runs": Rule("retrieval.fuse:fuse_runs", 1, Need(4000, 0, 15), reads="queries"),
    "import_run": Rule("retrieval.imported:import_run", 1, Need(4000, 1000, 15, 5), reads="queries"),
    "sample_queries": Rule("mining.sample:sample_queries", 1, Need(4000, 0, 30), seeded=True),
    "rank_bm25": Rule("lexical.candidates:rank_bm25", 1, Need(4000, 4000, 30, 30, threads=8)),
    "search_candidates": Rule(
        "retrieval.search:search_shard", 1, Need(4000, 6500, 30, 120, threads=8, gpu=True, sharded=True)
    ),
    "merge_candidates": Rule("retrieval.merge:merge_candidates", 1, Need(6000, 100, 30, 10)),
    "hold_out_items": Rule(
        "mining.held_out:hold_out_items", 3, Need(6000, 4000, 60, 60, threads=8), seeded=True, reads="corpus"
    ),
    "generate_queries": Rule(
        "mining.questions:generate_queries", 3, encoding(8000, 500, 480), seeded=True, reads="corpus"
    ),
    "fuse_candidates": Rule("retrieval.fuse:fuse_candidates", 1, Need(4000, 100, 30, 30)),
    "mine_negatives": Rule("mining.mine:mine_negatives", 1, Need(8000, 0, 60), seeded=True),
    "cut_spans": Rule("mining.spans:cut_spans", 2, Need(4000, 500, 30, 30, threads=8), seeded=True, reads="corpus"),
    "pretrain": Rule("training.pretrain:pretrain", 4, training(16000, 2880), seeded=True, reads="corpus"),
    "init_model": Rule("training.kinds:init_model", 2, Need(6000, 0, 60), seeded=True),
    "finetune": Rule("training.finetune:finetune", 1, training(12000, 1440), seeded=True),
    "take_step": Rule("encoders.publishing.export:take_step", 1),
    "export_model": Rule("encoders.publishing.export:export_model", 1, Need(6000, 0, 30)),
    "export_adapted": Rule("encoders.publishing.adapted:export_adapted", 2, Need(6000, 0, 30)),
    "score_pairs": Rule("training.teaching.teacher:score_pairs", 2, encoding(8000, 0, 1440)),
    "evaluate_run": Rule("evaluation.evaluate:evaluate_run", 2, Need(3000, 0, 15), seeded=True),
    "judge_adaptation": Rule("evaluation.judge_adaptation:judge_adaptation", 2, Need(3000, 0, 15), seeded=True),
    "compare_runs": Rule("evaluation.compare:compare_runs", 1, Need(4000, 0, 30), seeded=True),
    "build_table": Rule("reporting.table:build_table", 4),
    "build_row": Rule("reporting.table:build_table", 3),
    "build_queries": Rule("pages.queries:build_queries", 1, Need(6000, 0, 60)),
    "build_query_page": Rule("pages.queries:build_query_page", 1),
    "build_leaderboard": Rule("pages.leaderboard:build_leaderboard", 1),
    "plot_table": Rule("reporting.figure:plot_table", 2, seeded=True),
    "build_item": Rule("reporting.items:build_item", 5, seeded=True),
    "plot_item": Rule("reporting.item_figures:plot_item", 4),
    "build_paper": Rule("reporting.items:build_paper", 2),
    "build_published": Rule("reporting.published_page:build_published", 3),
    "build_adapted_page": Rule("pages.adapted:build_adapted_page", 3),
    "publish_lineage": Rule("lineage.publish:publish_lineage", 1),
}
