"""Plan workflow/rules/dense.smk: embeddings by shard, search by shard, merge; fusion; imported runs."""

from typing import Any

from zerodr.config.index import IndexSettings
from zerodr.config.load import files_of_model
from zerodr.config.methods import (
    EncoderSettings,
    FeedbackMethod,
    FusionSettings,
    LexicalMethod,
    MixtureMethod,
    RunSettings,
    TrainedMethod,
)
from zerodr.config.stages import FinetuneStage
from zerodr.plan import paths
from zerodr.plan.lexical import ranking
from zerodr.plan.lines import SCOPE, Link
from zerodr.plan.plan import QUERIES, Files, Params, Plan, draws, inputs, params, shard_numbers

INDEX_FIELDS = set(IndexSettings.model_fields)
IMPORTED = {"model", "revision", "pooling", "normalize", "query_prefix", "document_prefix", "max_tokens"}
PAIR = {"document_model", "document_revision"}


# ---- models ----------------------------------------------------------------------------------------------------
def model_of(plan: Plan, name: str, scope: str = SCOPE) -> str:
    """Manifest of the model that a row's embeddings in a scope are made with.

    Raises:
        ConfigError: there is no model in this scope, or it embeds nothing.
    """
    plan.method(name).check_ranks(f"method {name!r}")
    if isinstance(plan.method(name), TrainedMethod):
        return plan.chains.model(plan.chains.check(plan.chains.link(name, scope)._replace(scope=scope)))
    return paths.model(name, scope, "imported")


@inputs("import_model")
def _import_inputs(plan: Plan, wc: Any) -> Files:
    settings = plan.bench.settings(wc.model, EncoderSettings)
    return {"files": [file for model in models_of(settings) for file in files_of_model(model)]}


def models_of(settings: EncoderSettings) -> list[str]:
    """Names of the one or two models of an encoder method."""
    return [model for model in (settings.model, settings.document_model) if model is not None]


@params("import_model")
def _import_params(plan: Plan, wc: Any) -> Params:
    settings = plan.bench.settings(wc.model, EncoderSettings)
    both = PAIR if settings.document_model is not None else set()
    return settings.model_dump(mode="json", include=IMPORTED | both)


# ---- embeddings ------------------------------------------------------------------------------------------------
@inputs("embed_corpus", "embed_queries")
def _embedding_inputs(plan: Plan, wc: Any) -> Files:
    collection = plan.labelled(wc.collection, getattr(wc, "split", ""))
    return {"collection": collection, "model": model_of(plan, wc.model, wc.scope)}


def embedding(plan: Plan, model: str, collection: str, protocol: str) -> Params:
    """Params of every rule that embeds texts of a collection with a model, under a protocol."""
    row, rules = plan.collection(collection), plan.protocol(protocol)
    lengths = rules.overrides.get(row.name, rules)
    return {
        "collection": row.name,
        "query_tokens": lengths.query_tokens or rules.query_tokens,
        "document_tokens": lengths.document_tokens or rules.document_tokens,
        "title_join": plan.collection(row.name).title_join,
    } | plan.method(model).settings.model_dump(mode="json", include={"precision", "batch_tokens"})


@params("embed_corpus")
def _corpus_params(plan: Plan, wc: Any) -> Params:
    reuse = {"reuse": True} if plan.collection(wc.collection).kind in ("own", "proxy") else {}
    return embedding(plan, wc.model, wc.collection, wc.protocol) | shard_numbers(wc.shard) | reuse


@params("embed_queries")
def _queries_params(plan: Plan, wc: Any) -> Params:
    return embedding(plan, wc.model, wc.collection, wc.protocol) | {"split": wc.split}


# ---- search ----------------------------------------------------------------------------------------------------
def embeddings_for(plan: Plan, name: str, collection: str, content: str, protocol: str) -> str:
    """The embeddings that a method searches: those of the model made for the collection."""
    method = plan.method(name)
    if isinstance(method, FeedbackMethod | MixtureMethod):
        return embeddings_for(plan, method.settings.model, collection, content, protocol)
    if isinstance(method, TrainedMethod):
        return corpus_embeddings(plan, plan.chains.ranker(name, collection), collection, protocol, content)
    return paths.embeddings(embedded_by(plan, name), SCOPE, collection, protocol, content)


def corpus_embeddings(plan: Plan, link: Link, collection: str, protocol: str, content: str) -> str:
    """The embeddings of documents that a model's queries are compared with: its own, or those that its stage keeps."""
    stage = plan.chains.find_stage(link._replace(stage=link.stage.partition(".")[0]))
    if isinstance(stage, FinetuneStage) and stage.keep_index is not None:
        return paths.embeddings(embedded_by(plan, stage.keep_index), SCOPE, collection, protocol, content)
    return paths.embeddings(link.name, link.scope, collection, protocol, content)


def embedded_by(plan: Plan, method: str) -> str:
    """The encoder whose embeddings a method searches: variants that only change the index share the recipe's."""
    recipe = method.partition("+")[0]
    variant, base = (
        plan.bench.settings(name, EncoderSettings).model_dump(exclude=INDEX_FIELDS) for name in (method, recipe)
    )
    return recipe if variant == base else method


def query_embeddings(plan: Plan, row: str, link: Link, collection: str, protocol: str, split: str) -> str:
    """The embeddings of the queries that a row's model searches with, as its stage adds to them."""
    stage = plan.chains.find_stage(link)
    for field, function in QUERIES.items():
        if stage is not None and stage.find(field) is not None:
            return function(plan, row, link, collection, protocol, split)
    return paths.embeddings(link.name, link.scope, collection, protocol, f"queries.{split}")


def searched_queries(plan: Plan, name: str, collection: str, protocol: str) -> str:
    """The embeddings of a collection's queries that a method searches with."""
    split, method = plan.collection(collection).ranked_split, plan.method(name)
    if isinstance(method, FeedbackMethod | MixtureMethod):
        return paths.embeddings(name, SCOPE, collection, protocol, f"queries.{split}")
    if isinstance(method, TrainedMethod):
        return query_embeddings(plan, name, plan.chains.ranker(name, collection), collection, protocol, split)
    return embeddings_for(plan, name, collection, f"queries.{split}", protocol)


@inputs("search_shard")
def _search_inputs(plan: Plan, wc: Any) -> Files:
    return {
        "queries": searched_queries(plan, wc.model, wc.collection, wc.protocol),
        "corpus": embeddings_for(plan, wc.model, wc.collection, f"corpus-{wc.shard}", wc.protocol),
        "collection": paths.collection(wc.collection),
    }


def _index(plan: Plan, name: str) -> Params:
    method = plan.method(name)
    if isinstance(method, FeedbackMethod | MixtureMethod):
        return _index(plan, method.settings.model)
    if isinstance(method, TrainedMethod):
        return {"index": "flat"}
    return method.settings.model_dump(mode="json", include=INDEX_FIELDS)


@params("search_shard")
def _search_params(plan: Plan, wc: Any) -> Params:
    return ranking(plan, wc, "language") | _index(plan, wc.model) | shard_numbers(wc.shard)


@draws("search_shard")
def _search_draws(plan: Plan, wc: Any) -> bool:
    return _index(plan, wc.model)["index"] != "flat"


@inputs("merge_run")
def _merge_inputs(plan: Plan, wc: Any) -> Files:
    shards = plan.shard_names("shard", wc.collection)
    hits = [paths.shard_hits(wc.model, wc.collection, wc.protocol, shard) for shard in shards]
    return {"hits": hits, "collection": paths.collection(wc.collection)}


@params("merge_run")
def _merge_params(plan: Plan, wc: Any) -> Params:
    return ranking(plan, wc, "language", "exclude_self") | {"tag": wc.model}


# ---- fusion ----------------------------------------------------------------------------------------------------
@inputs("fuse_runs")
def _fuse_inputs(plan: Plan, wc: Any) -> Files:
    settings = plan.bench.settings(wc.model, FusionSettings)
    runs = [paths.run(run, wc.collection, wc.protocol) for run in settings.runs]
    return {"runs": runs, "collection": paths.collection(wc.collection)}


@params("fuse_runs")
def _fuse_params(plan: Plan, wc: Any) -> Params:
    return fusion_params(plan, wc.model) | ranking(plan, wc, "language") | {"tag": wc.model}


def fusion_params(plan: Plan, name: str) -> Params:
    """Return the settings of a fusion, and which of its runs score a document 0 that they lack, where that is read."""
    settings = plan.bench.settings(name, FusionSettings)
    lexical = [isinstance(plan.method(run), LexicalMethod) for run in settings.runs]
    read = settings.fusion == "standard_score" and any(lexical)
    return settings.model_dump(mode="json", exclude_none=True) | ({"unfound_is_zero": lexical} if read else {})


# ---- runs made elsewhere ---------------------------------------------------------------------------------------
@inputs("import_run")
def _run_inputs(plan: Plan, wc: Any) -> Files:
    file = plan.bench.run_file(wc.model, wc.collection)
    return {"file": file, "collection": paths.collection(wc.collection)}


@params("import_run")
def _run_params(plan: Plan, wc: Any) -> Params:
    source = plan.bench.settings(wc.model, RunSettings).source
    return ranking(plan, wc, "language") | {"tag": wc.model, "source": source}
