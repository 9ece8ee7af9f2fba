"""Which library function each rule runs, and the version of its results.

Raise a version when the function's results change: every artifact of that rule and what depends on it is made again.
Changes of the library that leave results alone need nothing.
"""

from __future__ import annotations

from typing import NamedTuple


class StageKind(NamedTuple):
    """`module:function` below `zerodr`, the version of its results, and whether it makes random choices."""

    function: str
    version: int
    seeded: bool = False


STAGES = {
    "fetch_archive": StageKind("collections.fetch:fetch_archive", 1),
    "normalize_collection": StageKind("collections.normalize:normalize_collection", 1),
    "measure_statistics": StageKind("collections.statistics:measure_statistics", 1),
    "index_bm25": StageKind("lexical.index:index_bm25", 1),
    "search_bm25": StageKind("lexical.search:search_bm25", 1),
    "import_model": StageKind("encoders.importing:import_model", 1),
    "embed_corpus": StageKind("retrieval.embed:embed_corpus", 1),
    "embed_queries": StageKind("retrieval.embed:embed_queries", 1),
    "search_shard": StageKind("retrieval.search:search_shard", 1),
    "merge_run": StageKind("retrieval.merge:merge_run", 1),
    "fuse_runs": StageKind("retrieval.fuse:fuse_runs", 1),
    "rank_bm25": StageKind("lexical.candidates:rank_bm25", 1),
    "search_candidates": StageKind("retrieval.search:search_shard", 1),
    "merge_candidates": StageKind("retrieval.merge:merge_candidates", 1),
    "mine_negatives": StageKind("mining.mine:mine_negatives", 1, seeded=True),
    "cut_spans": StageKind("mining.spans:cut_spans", 1, seeded=True),
    "pretrain": StageKind("training.pretrain:pretrain", 3, seeded=True),
    "cluster_queries": StageKind("mining.clusters:cluster_queries", 1, seeded=True),
    "init_model": StageKind("encoders.initial:init_model", 2, seeded=True),
    "finetune": StageKind("training.finetune:finetune", 1, seeded=True),
    "embed_memory": StageKind("retrieval.fused:embed_memory", 1),
    "embed_memory_queries": StageKind("retrieval.fused:embed_memory_queries", 1),
    "search_memory": StageKind("retrieval.mixture:search_memory", 1),
    "merge_memories": StageKind("retrieval.mixture:merge_memories", 1),
    "train_main": StageKind("training.moma:train_main", 1, seeded=True),
    "measure_attention": StageKind("mining.attention:measure_attention", 2),
    "mine_memories": StageKind("mining.memories:mine_memories", 2, seeded=True),
    "train_augmenter": StageKind("training.moma:train_augmenter", 2, seeded=True),
    "join_components": StageKind("training.moma:join_components", 1),
    "export_memory": StageKind("retrieval.moma:export_memory", 3),
    "measure_shares": StageKind("analysis.shares:measure_shares", 2),
    "embed_fused_queries": StageKind("retrieval.fused:embed_fused_queries", 1),
    "assemble": StageKind("encoders.assembly:assemble", 1),
    "take_step": StageKind("encoders.export:take_step", 1),
    "init_teacher": StageKind("training.teacher:init_teacher", 1, seeded=True),
    "train_teacher": StageKind("training.teacher:train_teacher", 1, seeded=True),
    "score_pairs": StageKind("training.teacher:score_pairs", 1),
    "segment_units": StageKind("mining.units:segment_units", 1),
    "label_units": StageKind("mining.unit_labels:label_units", 1),
    "measure_units": StageKind("analysis.unit_measures:measure_units", 1, seeded=True),
    "init_reader": StageKind("training.reader:init_reader", 1, seeded=True),
    "train_reader": StageKind("training.reader:train_reader", 1, seeded=True),
    "read_units": StageKind("training.unit_reading:read_units", 1),
    "export_model": StageKind("encoders.export:export_model", 1),
    "measure_domains": StageKind("analysis.measure:measure_domains", 1, seeded=True),
    "project_domains": StageKind("analysis.projection:project_domains", 1, seeded=True),
    "evaluate_run": StageKind("evaluation.evaluate:evaluate_run", 2, seeded=True),
    "compare_runs": StageKind("evaluation.compare:compare_runs", 1, seeded=True),
    "build_table": StageKind("reporting.table:build_table", 1),
    "build_row": StageKind("reporting.table:build_table", 1),
    "plot_table": StageKind("reporting.figure:plot_table", 1, seeded=True),
    "measure_space": StageKind("analysis.spaces:measure_space", 1, seeded=True),
    "build_item": StageKind("reporting.items:build_item", 1, seeded=True),
    "plot_item": StageKind("reporting.item_figures:plot_item", 2),
    "build_paper": StageKind("reporting.items:build_paper", 1),
    "publish_lineage": StageKind("lineage.publish:publish_lineage", 1),
}
