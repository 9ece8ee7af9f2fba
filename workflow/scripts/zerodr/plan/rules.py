"""Name the library function that each rule runs, and the version of its results.

Raise a version when the function's results change: every artifact of that rule and what depends on it is rebuilt. A
function that moves keeps its results, because its address is no part of a stage's identity.
"""

from __future__ import annotations

from typing import NamedTuple


class Rule(NamedTuple):
    """`module:function` below `zerodr`, the version of its results, and whether it draws random numbers."""

    function: str
    version: int
    seeded: bool = False


RULES = {
    "fetch_archive": Rule("collections.fetch:fetch_archive", 1),
    "normalize_collection": Rule("collections.normalize:normalize_collection", 1),
    "measure_statistics": Rule("collections.statistics:measure_statistics", 1),
    "index_bm25": Rule("lexical.index:index_bm25", 1),
    "search_bm25": Rule("lexical.search:search_bm25", 1),
    "import_model": Rule("encoders.importing:import_model", 1),
    "embed_corpus": Rule("retrieval.embed:embed_corpus", 1),
    "embed_queries": Rule("retrieval.embed:embed_queries", 1),
    "search_shard": Rule("retrieval.search:search_shard", 1),
    "merge_run": Rule("retrieval.merge:merge_run", 1),
    "fuse_runs": Rule("retrieval.fuse:fuse_runs", 1),
    "rank_bm25": Rule("lexical.candidates:rank_bm25", 1),
    "search_candidates": Rule("retrieval.search:search_shard", 1),
    "merge_candidates": Rule("retrieval.merge:merge_candidates", 1),
    "mine_negatives": Rule("mining.mine:mine_negatives", 1, seeded=True),
    "cut_spans": Rule("mining.spans:cut_spans", 1, seeded=True),
    "pretrain": Rule("training.pretrain:pretrain", 3, seeded=True),
    "cluster_queries": Rule("mining.clusters:cluster_queries", 1, seeded=True),
    "init_model": Rule("encoders.initial:init_model", 2, seeded=True),
    "finetune": Rule("training.finetune:finetune", 1, seeded=True),
    "embed_memory": Rule("retrieval.fused:embed_memory", 1),
    "embed_memory_queries": Rule("retrieval.fused:embed_memory_queries", 1),
    "search_memory": Rule("retrieval.mixture:search_memory", 1),
    "merge_memories": Rule("retrieval.mixture:merge_memories", 1),
    "train_main": Rule("training.moma:train_main", 1, seeded=True),
    "measure_attention": Rule("mining.attention:measure_attention", 2),
    "mine_memories": Rule("mining.memories:mine_memories", 2, seeded=True),
    "train_augmenter": Rule("training.moma:train_augmenter", 2, seeded=True),
    "join_components": Rule("training.moma:join_components", 1),
    "export_memory": Rule("retrieval.moma:export_memory", 3),
    "measure_shares": Rule("analysis.shares:measure_shares", 2),
    "embed_fused_queries": Rule("retrieval.fused:embed_fused_queries", 1),
    "assemble": Rule("encoders.assembly:assemble", 1),
    "take_step": Rule("encoders.export:take_step", 1),
    "init_teacher": Rule("training.teacher:init_teacher", 1, seeded=True),
    "train_teacher": Rule("training.teacher:train_teacher", 1, seeded=True),
    "score_pairs": Rule("training.teacher:score_pairs", 1),
    "segment_units": Rule("mining.units:segment_units", 1),
    "label_units": Rule("mining.unit_labels:label_units", 1),
    "measure_units": Rule("analysis.unit_measures:measure_units", 1, seeded=True),
    "init_reader": Rule("training.reader:init_reader", 1, seeded=True),
    "train_reader": Rule("training.reader:train_reader", 1, seeded=True),
    "read_units": Rule("training.unit_reading:read_units", 1),
    "export_model": Rule("encoders.export:export_model", 1),
    "measure_domains": Rule("analysis.measure:measure_domains", 1, seeded=True),
    "project_domains": Rule("analysis.projection:project_domains", 1, seeded=True),
    "evaluate_run": Rule("evaluation.evaluate:evaluate_run", 2, seeded=True),
    "compare_runs": Rule("evaluation.compare:compare_runs", 1, seeded=True),
    "build_table": Rule("reporting.table:build_table", 1),
    "build_row": Rule("reporting.table:build_table", 1),
    "plot_table": Rule("reporting.figure:plot_table", 1, seeded=True),
    "measure_space": Rule("analysis.spaces:measure_space", 1, seeded=True),
    "build_item": Rule("reporting.items:build_item", 1, seeded=True),
    "plot_item": Rule("reporting.item_figures:plot_item", 2),
    "build_paper": Rule("reporting.items:build_paper", 1),
    "publish_lineage": Rule("lineage.publish:publish_lineage", 1),
}
