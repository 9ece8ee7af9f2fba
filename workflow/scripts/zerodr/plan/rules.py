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
    "import_model": Rule("encoders.start.importing:import_model", 1),
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
    "cluster_queries": Rule("papers.coco_dr.cluster_queries:cluster_queries", 1, seeded=True),
    "init_model": Rule("encoders.start.initial:init_model", 2, seeded=True),
    "finetune": Rule("training.finetune:finetune", 1, seeded=True),
    "embed_memory": Rule("papers.moma.embed_fused:embed_memory", 1),
    "embed_memory_queries": Rule("papers.moma.embed_fused:embed_memory_queries", 1),
    "search_memory": Rule("papers.moma.search_memory:search_memory", 1),
    "merge_memories": Rule("papers.moma.search_memory:merge_memories", 1),
    "train_main": Rule("training.finetune:finetune", 1, seeded=True),
    "measure_attention": Rule("papers.moma.measure_attention:measure_attention", 2),
    "mine_memories": Rule("papers.moma.mine_memories:mine_memories", 2, seeded=True),
    "train_augmenter": Rule("papers.moma.episode:train_augmenter", 2, seeded=True),
    "join_components": Rule("papers.moma.episode:join_components", 1),
    "export_memory": Rule("papers.moma.retriever:export_memory", 3),
    "measure_shares": Rule("papers.moma.measure_shares:measure_shares", 2),
    "embed_fused_queries": Rule("papers.moma.embed_fused:embed_fused_queries", 1),
    "assemble": Rule("papers.ddr.assemble:assemble", 1),
    "take_step": Rule("encoders.publishing.export:take_step", 1),
    "init_teacher": Rule("training.teaching.teacher:init_teacher", 1, seeded=True),
    "train_teacher": Rule("training.teaching.teacher:train_teacher", 1, seeded=True),
    "score_pairs": Rule("training.teaching.teacher:score_pairs", 1),
    "segment_units": Rule("papers.berm.segment_units:segment_units", 1),
    "label_units": Rule("papers.berm.label_units:label_units", 1),
    "measure_units": Rule("papers.berm.measure_units:measure_units", 1, seeded=True),
    "init_reader": Rule("papers.berm.train_reader:init_reader", 1, seeded=True),
    "train_reader": Rule("papers.berm.train_reader:train_reader", 1, seeded=True),
    "read_units": Rule("papers.berm.read_units:read_units", 1),
    "export_model": Rule("encoders.publishing.export:export_model", 1),
    "measure_domains": Rule("papers.modir.measure_domains:measure_domains", 1, seeded=True),
    "project_domains": Rule("papers.modir.project_domains:project_domains", 1, seeded=True),
    "evaluate_run": Rule("evaluation.evaluate:evaluate_run", 2, seeded=True),
    "compare_runs": Rule("evaluation.compare:compare_runs", 1, seeded=True),
    "build_table": Rule("reporting.table:build_table", 1),
    "build_row": Rule("reporting.table:build_table", 1),
    "plot_table": Rule("reporting.figure:plot_table", 1, seeded=True),
    "measure_space": Rule("papers.coco_dr.measure_space:measure_space", 1, seeded=True),
    "build_item": Rule("reporting.items:build_item", 1, seeded=True),
    "plot_item": Rule("reporting.item_figures:plot_item", 2),
    "build_paper": Rule("reporting.items:build_paper", 1),
    "publish_lineage": Rule("lineage.publish:publish_lineage", 1),
}
