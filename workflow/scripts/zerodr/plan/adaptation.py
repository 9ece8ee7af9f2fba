"""Plan workflow/rules/adaptation.smk: known items of a folder, candidates compared on it, the best one exported."""

import shlex
from types import SimpleNamespace
from typing import Any

from zerodr.config.counterparts import USUAL, renamed
from zerodr.config.load import load_bench
from zerodr.config.methods import (
    FeedbackMethod,
    FusionMethod,
    LexicalMethod,
    LexicalSettings,
    MixtureMethod,
    TrainedMethod,
)
from zerodr.config.registry import Collection, name_language
from zerodr.config.user_folders import ADAPTING, ENDING, SPLIT
from zerodr.errors import ConfigError
from zerodr.plan import paths
from zerodr.plan.dense import embedded_by, embedding, embeddings_for
from zerodr.plan.lines import SCOPE, Link
from zerodr.plan.mining import writer_files
from zerodr.plan.plan import PARAMS, Files, Params, Plan, inputs, params
from zerodr.plan.reporting import remark_of, unusual

FEW = 300  # documents below which nothing is trained
AFRESH = "--afresh"


# ---- what is compared on what ----------------------------------------------------------------------------------
def candidates(plan: Plan) -> tuple[str, ...]:
    """Methods that are compared.

    Raises:
        ConfigError: fewer than two are configured, or one is not known.
    """
    names = plan.config.candidates
    if len(names) < 2:
        raise ConfigError("candidates", f"names {len(names)} methods, expected at least two", "see config/config.yaml")
    for name in names:
        if isinstance(plan.method(name), MixtureMethod):
            raise ConfigError("candidates", f"{name} reads memories that no exported folder holds", "leave it out")
    return names


def is_adapted(plan: Plan, name: str) -> bool:
    """True when a method learns from the documents of its target or reads them, or is the fusion with one that does."""
    method = plan.method(name)
    if isinstance(method, FusionMethod):
        return any(is_adapted(plan, run) for run in method.settings.runs)
    return isinstance(method, FeedbackMethod) or isinstance(method, TrainedMethod) and plan.chains.is_adapted(name)


def is_trained(plan: Plan, name: str) -> bool:
    """True when a method searches with a model that is trained here."""
    encoder = encoder_of(plan, name)
    return bool(encoder) and isinstance(plan.method(encoder), TrainedMethod)


def _is_fusion(plan: Plan, name: str) -> bool:
    return isinstance(plan.method(name), FusionMethod)


def judged_on(plan: Plan, collection: str) -> list[Collection]:
    """Collections with judgements that decide: those of a folder, and its known items where they are held out.

    Raises:
        ConfigError: there are none.
    """
    proxy = plan.bench.collections.get(collection + ENDING)
    rows = [row for row in (plan.collection(collection), proxy) if row is not None and row.evaluation_split]
    if not rows:
        what = "has no judgements, and no known items are held out: nothing can be compared"
        raise ConfigError(collection, what, "add --config held_out=300, or qrels/test.tsv")
    return rows


def has_unjudged_queries(plan: Plan, row: Collection) -> bool:
    """True when a folder has queries without judgements."""
    folder = plan.bench.folders.get(row.name)
    return folder is not None and not row.evaluation_split and "queries" in folder.files


# ---- known items -----------------------------------------------------------------------------------------------
@inputs("hold_out_items")
def _hold_out_inputs(plan: Plan, wc: Any) -> Files:
    earlier = plan.config.retained.get(paths.collection(wc.collection))
    source = {"collection": paths.collection(plan.collection(wc.collection).held_out_of)}
    writer = plan.config.question_writer if plan.config.held_out_questions else None
    return source | ({"earlier": earlier} if earlier else {}) | writer_files(writer.model if writer else "")


@params("hold_out_items")
def _hold_out_params(plan: Plan, wc: Any) -> Params:
    chosen: Params = {"name": wc.collection, "split": SPLIT, "count": plan.config.held_out}
    if not plan.config.held_out_questions:
        return chosen
    writer, source = plan.config.question_writer, plan.collection(wc.collection).held_out_of
    if writer is None or writer.round_trip or writer.each != (1, 1):
        expected = "expected a language model with round_trip: null and each: [1, 1]"
        raise ConfigError("question_writer", f"writes no known items, {expected}", "see config/config.yaml")
    written = {"questions": plan.config.held_out_questions, "writer": writer.model_dump(mode="json", exclude_none=True)}
    return chosen | written | {"title_join": plan.collection(source).title_join}


# ---- comparison ------------------------------------------------------------------------------------------------
@inputs("judge_adaptation")
def _judge_inputs(plan: Plan, wc: Any) -> Files:
    """Return measures and rankings of every candidate on every collection, and grades of the user."""
    rows, protocol = judged_on(plan, wc.collection), plan.config.protocol
    cells = [(name, row.name) for row in rows for name in candidates(plan)]
    files: Files = {
        "per_query": [paths.per_query(name, row, protocol) for name, row in cells],
        "runs": [paths.run(name, row, protocol) for name, row in cells],
        "collections": [paths.collection(row.name) for row in rows],
        "whole": paths.collection(wc.collection),
    }
    if has_unjudged_queries(plan, plan.collection(wc.collection)):
        files["asked_runs"] = [paths.run(name, wc.collection, protocol) for name in candidates(plan)]
        files["asked"] = paths.collection(wc.collection)
    return files | ({"judged": plan.config.judged} if plan.config.judged else {})


@params("judge_adaptation")
def _judge_params(plan: Plan, wc: Any) -> Params:
    rows = judged_on(plan, wc.collection)
    return {
        "collection": wc.collection,
        "methods": [facts_of(plan, name) for name in candidates(plan)],
        "collections": [{"name": r.name, "split": r.evaluation_split, "proxy": r.kind == "proxy"} for r in rows],
    }


def facts_of(plan: Plan, name: str) -> Params:
    """Name, label, kind and footnote of a candidate, and whether it learned from the documents."""
    method = plan.method(name)
    facts = {"name": name, "label": method.label, "kind": method.kind, "adapted": is_adapted(plan, name)}
    return facts | {"description": method.description, "remark": remark_of(plan, name)}


# ---- the best one ----------------------------------------------------------------------------------------------
def encoder_of(plan: Plan, name: str) -> str:
    """The method whose vectors a candidate searches: itself, the dense one of a fusion, empty for words alone."""
    method = plan.method(name)
    if isinstance(method, FusionMethod):
        return next((one for run in method.settings.runs if (one := encoder_of(plan, run))), "")
    if isinstance(method, FeedbackMethod):
        return method.settings.model
    return "" if isinstance(method, LexicalMethod) else name


def model_link(plan: Plan, name: str, collection: str) -> tuple[str, str]:
    """Manifest and scope of the model that a dense method ranks a collection with."""
    if isinstance(plan.method(name), TrainedMethod):
        link: Link = plan.chains.ranker(name, collection)
        return plan.chains.model(link), link.scope
    return paths.model(embedded_by(plan, name), SCOPE, "imported"), SCOPE


def encoders(plan: Plan) -> list[str]:
    """Models that candidates search with, and those of methods that they are made of, each once."""
    members = (member for one in candidates(plan) for member in _members(plan, one))
    return list(dict.fromkeys(name for member in members if (name := encoder_of(plan, member))))


def learned_attentions(plan: Plan) -> list[str]:
    """Methods among the candidates, and what these are made of, whose attention to documents is learned."""
    named = dict.fromkeys(one for name in candidates(plan) for one in _members(plan, name))
    return [name for name in named if _learns_attention(plan, name)]


def _learns_attention(plan: Plan, name: str) -> bool:
    method = plan.method(name)
    return isinstance(method, FeedbackMethod) and method.settings.attention is not None


def whole_vectors(plan: Plan, name: str, collection: str) -> list[str]:
    """Embeddings of all shards of a folder's whole documents that a candidate searches; none for words alone."""
    encoder, protocol = encoder_of(plan, name), plan.config.protocol
    shards = plan.shard_names("corpus", collection) if encoder else []
    return [embeddings_for(plan, encoder, collection, shard, protocol) for shard in shards]


def _joined(plan: Plan, name: str) -> list[str]:
    """Methods whose rankings a method joins or reads: those of a fusion; the bi-encoder and the memory of feedback."""
    method = plan.method(name)
    if isinstance(method, FusionMethod):
        return list(method.settings.runs)
    return [method.settings.model, method.settings.memory] if isinstance(method, FeedbackMethod) else []


def _members(plan: Plan, name: str) -> list[str]:
    """List a method and all that it is made of, each once."""
    return list(dict.fromkeys([name, *(one for inner in _joined(plan, name) for one in _members(plan, inner))]))


def _lexical(plan: Plan) -> dict[str, str]:
    """Manifest names of the inverted indexes that candidates search, by method."""
    members = dict.fromkeys(one for name in candidates(plan) for one in _members(plan, name))
    settings = {name: plan.method(name).settings for name in members}
    return {name: f"{s.backend}-{s.fields}" for name, s in settings.items() if isinstance(s, LexicalSettings)}


@inputs("export_adapted")
def _export_inputs(plan: Plan, wc: Any) -> Files:
    """Return the answer, and of each candidate its model and what it searches in the whole, unshortened documents."""
    models = [model_link(plan, name, wc.collection)[0] for name in encoders(plan)]
    vectors = [path for name in encoders(plan) for path in whole_vectors(plan, name, wc.collection)]
    indexes = [paths.bm25_index(index, wc.collection) for index in _lexical(plan).values()]
    learned = [paths.learned_attention(name) for name in learned_attentions(plan)]
    optional = {"models": models, "vectors": list(dict.fromkeys(vectors)), "indexes": list(dict.fromkeys(indexes))}
    optional |= {"attentions": learned}
    files: Files = {"answer": paths.adapted_answer(wc.collection), "collection": paths.collection(wc.collection)}
    return files | {name: listed for name, listed in optional.items() if listed}


@params("export_adapted")
def _export_params(plan: Plan, wc: Any) -> Params:
    """Facts of every candidate, so that the one that the answer names can be exported with its card."""
    row = plan.collection(wc.collection)
    whole = [tuple(whole_vectors(plan, name, wc.collection)) for name in encoders(plan)]
    different, lexical = list(dict.fromkeys(whole)), _lexical(plan)
    return {
        "collection": wc.collection,
        "folder": row.archive if row.kind == "own" else "",
        "language": row.language,
        "title_join": plan.collection(row.name).title_join,
        "encoders": encoders(plan),
        "vectors": [different.index(one) for one in whole],
        "indexes": {name: list(dict.fromkeys(lexical.values())).index(index) for name, index in lexical.items()},
        **({"attentions": learned} if (learned := learned_attentions(plan)) else {}),
        "methods": [_exported(plan, name, wc.collection) for name in candidates(plan)],
    }


def _exported(plan: Plan, name: str, collection: str) -> Params:
    """How a candidate searches: its encoder, and settings of all methods that it is made of."""
    encoder, members = encoder_of(plan, name), _members(plan, name)
    trained = isinstance(plan.method(encoder), TrainedMethod) if encoder else False
    learned = [plan.chains.source_of(encoder)] if trained and not _learns_from_documents_alone(plan, encoder) else []
    learned += [plan.source] if any(_learns_attention(plan, one) for one in members) else []
    return facts_of(plan, name) | {
        "encoder": encoder,
        "scope": model_link(plan, encoder, collection)[1] if encoder else SCOPE,
        "ways": {one: _way(plan, one, collection) for one in members},
        "licences": {one: plan.collection(one).licence for one in learned},
        "published_share": _share(plan, encoder) if trained else None,
    }


RANKED_BY = {"fusion": "fuse_runs", "feedback": "augment_queries", "lexical": "search_bm25"}


def _way(plan: Plan, name: str, collection: str) -> Params:
    """How a method searches: its kind, the methods that it joins or reads, the params of the rule that ranks."""
    kind, protocol = plan.method(name).kind, plan.config.protocol
    wildcards = SimpleNamespace(model=name, collection=collection, protocol=protocol)
    if kind not in RANKED_BY:
        return {"kind": "dense", "members": [], "params": embedding(plan, name, collection, protocol)}
    return {"kind": kind, "members": _joined(plan, name), "params": PARAMS[RANKED_BY[kind]](plan, wildcards)}


def _learns_from_documents_alone(plan: Plan, name: str) -> bool:
    """True when all fine-tuning stages of a recipe learn from generated queries."""
    stages = plan.chains.fine_tuning(name)
    return bool(stages) and all(getattr(plan.chains.trained(name).chain[s], "generate", None) for s in stages)


def _share(plan: Plan, name: str) -> float | None:
    """Queries (or texts) in all steps of a recipe's trainings, as a share of the published ones; None: none is."""
    recipe = name.partition("@")[0]
    method = plan.method(recipe)
    if not isinstance(method, TrainedMethod) or not (method.origins.paper or method.origins.code):
        return None
    published = Plan(load_bench(plan.bench.root, {"scale": "paper"}))
    here, there = (
        sum(training.steps * training.batch_queries for training in one.chains.trainings(recipe).values())
        for one in (plan, published)
    )
    return here / there if there else None


# ---- the page --------------------------------------------------------------------------------------------------
@inputs("build_adapted_page")
def _page_inputs(plan: Plan, wc: Any) -> Files:
    return {"answer": paths.adapted_answer(wc.collection), "model": paths.adapted_model(wc.collection)}


@params("build_adapted_page")
def _page_params(plan: Plan, wc: Any) -> Params:
    row = plan.collection(wc.collection)
    return {
        "collection": wc.collection,
        "label": row.label,
        "command": _command(plan, row) if row.kind == "own" else paths.adapted_page(row.name),
        "methods": [facts_of(plan, name) for name in candidates(plan)],
        "hints": _hints(plan, row),
    }


def _hints(plan: Plan, row: Collection) -> list[str]:
    """Say where the numbers may mislead, and why nothing was trained."""
    hints, start = [], plan.config.start
    if plan.config.retained:
        hints.append(
            "A model that was trained here learned from your documents as they were before the last changes. It was "
            f"compared on those of today. {AFRESH} in the command trains it on them, too."
        )
    if row.language != "en" and start is None:
        hints.append(
            f"{USUAL} learned from English, and these documents are in {name_language(row.language)}. A model that "
            "reads it can be far better: zerodr adapt FOLDER --start MODEL."
        )
    if row.planned_documents < FEW and not any(is_trained(plan, name) for name in candidates(plan)):
        hints.append(
            f"Nothing was trained: about {row.planned_documents:,} documents are too few to learn from, and to tell "
            f"what was learned from chance. From {FEW} on zerodr trains; --method adapt-query does it now."
        )
    return hints


def _command(plan: Plan, row: Collection) -> str:
    """The command line that plans the same page."""
    config, start, words = plan.config, plan.config.start, ["zerodr", "adapt", row.archive]
    adapted = [name for name in candidates(plan) if is_adapted(plan, name) and not _is_fusion(plan, name)]
    recipes = [one for one in plan.bench.methods if (renamed(one, start) if start else one) in adapted]
    chosen = len(recipes) == 1 and (row.planned_documents >= FEW or is_trained(plan, adapted[0]))
    options = {
        "--method": recipes[0] if chosen else None,  # with few documents `auto` takes the one that trains nothing
        "--name": config.byo_name,
        "--language": row.language if row.language != "en" else None,
        "--start": start.model if start else None,
        **{f"--{role}": name or None for role, name in config.byo_columns},
    }
    words += [word for option, value in options.items() if value is not None for word in (option, value)]
    if config.held_out and row.evaluation_split:
        words.append("--proxies")
    words += ["--exclude-self"] if config.byo_exclude_self else []
    scale = [f"scale={config.scale}"] if config.scale != ADAPTING else []
    for word in (*scale, *unusual(config, ("seed", "protocol", "byo_cut", "byo_drop_missing"))):
        words += ["--config", word]
    return shlex.join(words)
