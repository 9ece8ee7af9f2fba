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
    "import_model": StageKind("encoders.start.importing:import_model", 1),
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
    "cluster_queries": StageKind("papers.coco_dr.cluster_queries:cluster_queries", 1, seeded=True),
    "init_model": StageKind("encoders.start.initial:init_model", 2, seeded=True),
    "finetune": StageKind("training.finetune:finetune", 1, seeded=True),
    "embed_memory": StageKind("papers.moma.embed_fused:embed_memory", 1),
    "embed_memory_queries": StageKind("papers.moma.embed_fused:embed_memory_queries", 1),
    "search_memory": StageKind("papers.moma.search_memory:search_memory", 1),
    "merge_memories": StageKind("papers.moma.search_memory:merge_memories", 1),
    "train_main": StageKind("training.finetune:finetune", 1, seeded=True),
    "measure_attention": StageKind("papers.moma.measure_attention:measure_attention", 2),
    "mine_memories": StageKind("papers.moma.mine_memories:mine_memories", 2, seeded=True),
    "train_augmenter": StageKind("papers.moma.episode:train_augmenter", 2, seeded=True),
    "join_components": StageKind("papers.moma.episode:join_components", 1),
    "export_memory": StageKind("papers.moma.retriever:export_memory", 3),
    "measure_shares": StageKind("papers.moma.measure_shares:measure_shares", 2),
    "embed_fused_queries": StageKind("papers.moma.embed_fused:embed_fused_queries", 1),
    "assemble": StageKind("papers.ddr.assemble:assemble", 1),
    "take_step": StageKind("encoders.publishing.export:take_step", 1),
    "init_teacher": StageKind("training.teaching.teacher:init_teacher", 1, seeded=True),
    "train_teacher": StageKind("training.teaching.teacher:train_teacher", 1, seeded=True),
    "score_pairs": StageKind("training.teaching.teacher:score_pairs", 1),
    "segment_units": StageKind("papers.berm.segment_units:segment_units", 1),
    "label_units": StageKind("papers.berm.label_units:label_units", 1),
    "measure_units": StageKind("papers.berm.measure_units:measure_units", 1, seeded=True),
    "init_reader": StageKind("papers.berm.train_reader:init_reader", 1, seeded=True),
    "train_reader": StageKind("papers.berm.train_reader:train_reader", 1, seeded=True),
    "read_units": StageKind("papers.berm.read_units:read_units", 1),
    "export_model": StageKind("encoders.publishing.export:export_model", 1),
    "measure_domains": StageKind("papers.modir.measure_domains:measure_domains", 1, seeded=True),
    "project_domains": StageKind("papers.modir.project_domains:project_domains", 1, seeded=True),
    "evaluate_run": StageKind("evaluation.evaluate:evaluate_run", 2, seeded=True),
    "compare_runs": StageKind("evaluation.compare:compare_runs", 1, seeded=True),
    "build_table": StageKind("reporting.table:build_table", 1),
    "build_row": StageKind("reporting.table:build_table", 1),
    "plot_table": StageKind("reporting.figure:plot_table", 1, seeded=True),
    "measure_space": StageKind("papers.coco_dr.measure_space:measure_space", 1, seeded=True),
    "build_item": StageKind("reporting.items:build_item", 1, seeded=True),
    "plot_item": StageKind("reporting.item_figures:plot_item", 2),
    "build_paper": StageKind("reporting.items:build_paper", 1),
    "publish_lineage": StageKind("lineage.publish:publish_lineage", 1),
}
