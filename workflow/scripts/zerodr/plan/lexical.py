"""Plan workflow/rules/lexical.smk: inverted indexes, rankings by BM25 and RM3."""

from typing import Any

from zerodr.config.methods import LexicalSettings
from zerodr.config.registry import WITHOUT_LUCENE
from zerodr.errors import ConfigError
from zerodr.plan import paths
from zerodr.plan.plan import Files, Params, Plan, inputs, params


def ranking(plan: Plan, wc: Any, *left_out: str) -> Params:
    """Params of every rule that ranks a collection: what is ranked, and how deep. Names in `left_out` are not there."""
    row, protocol = plan.collection(wc.collection), plan.protocol(wc.protocol)
    named = {
        "collection": row.name,
        "language": row.language,
        "split": row.ranked_split,
        "depth": protocol.depth,
        "exclude_self": row.exclude_self and protocol.exclude_self == "registry",
    }
    return {name: value for name, value in named.items() if name not in left_out}


@inputs("index_bm25")
def _index_inputs(plan: Plan, wc: Any) -> Files:
    return {"collection": paths.collection(wc.collection)}


@params("index_bm25")
def _index_params(plan: Plan, wc: Any) -> Params:
    backend, fields = wc.index.split("-")
    language = plan.collection(wc.collection).language
    if backend == "lucene" and language in WITHOUT_LUCENE:
        step = "name a method with backend: bm25s, such as bm25-flat+bm25s"
        raise ConfigError(f"{wc.collection}: language {language}", "Lucene has no analyzer for it", step)
    return {"backend": backend, "fields": fields, "language": language}


@inputs("search_bm25")
def _search_inputs(plan: Plan, wc: Any) -> Files:
    settings = plan.bench.settings(wc.model, LexicalSettings)
    index = paths.bm25_index(f"{settings.backend}-{settings.fields}", wc.collection)
    return {"index": index, "collection": paths.collection(wc.collection)}


@params("search_bm25")
def _search_params(plan: Plan, wc: Any) -> Params:
    """Order ties as all methods do where no published numbers are compared with."""
    published = plan.collection(wc.collection).has_archive
    ties = {} if published else {"ties": "as_trec_eval"}
    return plan.method(wc.model).settings.model_dump(mode="json") | ranking(plan, wc) | ties
