"""Plan workflow/rules/mining.smk: rankings of training queries by BM25, a model or both, then a choice of negatives."""

from typing import Any

from zerodr.config.methods import FusionSettings, LexicalSettings, TrainedMethod
from zerodr.config.training import FILE
from zerodr.plan import paths
from zerodr.plan.dense import corpus_embeddings, embeddings_for, query_embeddings
from zerodr.plan.lines import SCOPE, link_of
from zerodr.plan.plan import Plan, shard_numbers
from zerodr.plan.registry import Files, Params, inputs, params

INDEX = "bm25s-flat"
PROTOCOL = "standard"  # of encoders that were not trained here


@inputs("rank_bm25")
def _rank_inputs(plan: Plan, wc: Any) -> Files:
    return {"index": paths.bm25_index(INDEX, wc.collection), "collection": plan.labelled(wc.collection, wc.split)}


def _ranking(wc: Any) -> Params:
    return {"collection": wc.collection, "split": wc.split, "depth": int(wc.depth)}


@params("rank_bm25")
def _rank_params(plan: Plan, wc: Any) -> Params:
    settings = plan.bench.settings(wc.model, LexicalSettings)
    return _ranking(wc) | {"k1": settings.k1, "b": settings.b}


@inputs("search_candidates")
def _search_inputs(plan: Plan, wc: Any) -> Files:
    return {
        "queries": mining_queries(plan, wc),
        "corpus": mining_embeddings(plan, wc, f"corpus-{wc.shard}"),
        "collection": plan.labelled(wc.collection, wc.split),
    }


def mining_queries(plan: Plan, wc: Any) -> str:
    """The embeddings of the source's queries that negatives are searched with."""
    if not isinstance(plan.method(wc.model), TrainedMethod):
        return mining_embeddings(plan, wc, f"queries.{wc.split}")
    link = plan.chains.link(wc.model, wc.scope)
    return query_embeddings(plan, link.name, link, wc.collection, plan.chains.trained(link.method).protocol, wc.split)


def mining_embeddings(plan: Plan, wc: Any, content: str) -> str:
    """The embeddings of the source that negatives are searched in."""
    if not isinstance(plan.method(wc.model), TrainedMethod):
        return embeddings_for(plan, wc.model, wc.collection, content, PROTOCOL)
    link = plan.chains.link(wc.model, wc.scope)
    return corpus_embeddings(plan, link, wc.collection, plan.chains.trained(link.method).protocol, content)


@params("search_candidates")
def _search_params(plan: Plan, wc: Any) -> Params:
    return _ranking(wc) | {"exclude_self": False, "index": "flat"} | shard_numbers(wc.shard)


@inputs("merge_candidates")
def _merge_inputs(plan: Plan, wc: Any) -> Files:
    keys = (wc.model, wc.scope, wc.collection, wc.split, wc.depth)
    hits = [paths.candidate_hits(*keys, shard) for shard in plan.shard_names("shard", wc.collection)]
    return {"hits": hits, "collection": plan.labelled(wc.collection, wc.split)}


@params("merge_candidates")
def _merge_params(plan: Plan, wc: Any) -> Params:
    return _ranking(wc)


@inputs("fuse_candidates")
def _fuse_inputs(plan: Plan, wc: Any) -> Files:
    runs = plan.bench.settings(wc.model, FusionSettings).runs
    return {"rankings": [paths.candidates(run, SCOPE, wc.collection, wc.split, wc.depth) for run in runs]}


@params("fuse_candidates")
def _fuse_params(plan: Plan, wc: Any) -> Params:
    return plan.method(wc.model).settings.model_dump(mode="json", exclude_none=True) | _ranking(wc)


@inputs("mine_negatives")
def _mine_inputs(plan: Plan, wc: Any) -> Files:
    """The source, a ranking to take negatives from, what the stage before mined."""
    chains, link = plan.chains, link_of(wc)
    (source, split), ranker = chains.taught(link), chains.negatives_from(link)
    before, negatives = chains.mined_before(link), chains.stage(link).negatives
    files, depth = {"source": plan.labelled(source, split)}, negatives.depth
    files |= {"file": negatives.file} if negatives.file is not None else {}
    files |= {"candidates": paths.candidates(*ranker, source, split, depth)} if ranker else {}
    return files | ({"previous": paths.mined(*before.path_keys)} if before else {})


@params("mine_negatives")
def _mine_params(plan: Plan, wc: Any) -> Params:
    link, settings = link_of(wc), plan.chains.trained(wc.model)
    stage = plan.chains.stage(link)
    leaders = stage.generate is not None and stage.generate.positives == "ranked"
    return {
        **({"leaders": True} if leaders else {}),
        **({"scored": True} if stage.teacher == FILE else {}),
        "negatives": stage.negatives.model_dump(mode="json"),
        "split": plan.chains.taught(link)[1],
        "stage": wc.stage,
        "stage_index": list(settings.chain).index(wc.stage),
        "dev_queries": stage.training.dev_queries,
    }
