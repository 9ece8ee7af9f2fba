"""Estimate from the settings of a job, its model and its collection: seconds at a usual speed, and MiB of memory."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from zerodr.artifacts.processor import vendor_and_flags
from zerodr.config.speeds import Speeds
from zerodr.config.stages import FinetuneStage, PretrainStage
from zerodr.config.starts import PACKAGE
from zerodr.config.training import InitSettings, PairSettings
from zerodr.operations.estimate.jobs import Job
from zerodr.operations.estimate.sizes import network_of, text_rows
from zerodr.plan import Plan
from zerodr.plan.lines import SCOPE, Link, link_of
from zerodr.plan.memory import (
    LAYER_WEIGHTS,
    LEAST_TRAINING_MIB,
    BatchSize,
    Data,
    asked,
    data_mib,
    mining_mib,
    training_mib,
)
from zerodr.plan.resources import need
from zerodr.plan.rules import RULES

FORWARD, BACKWARD = 2, 4  # operations a parameter and token
TWO_VIEWS = ("ict", "simcse")  # pretraining objectives that make two texts of a document that is not cut, too
LINES = (".jsonl", ".csv", ".tsv")  # files with a document in a line, not packed
TOKEN_BYTES = 4  # of English text; ids and names of fields count as text, too
TRAINED = "trained"  # kind of the methods that train
ADDED = 1.5  # texts of a step that a paper adds something to, in units of the others: assumed
HEADED = ("coco", "condenser", "tsdae")  # those with layers of their own
PREDICTIONS = {"mlm": 1.0, "coco": 2.0, "condenser": 2.0}  # of a masked token: by the last layer, by Condenser's head


def settings_of(plan: Plan, job: Job) -> dict[str, Any]:
    """Return the settings among the params of a job."""
    return dict(json.loads(plan.settings(job.rule)(job.asked))["settings"])


def views(plan: Plan, link: Link) -> int:
    """Count the texts that a pretraining reads of a document in a step.

    Two spans where documents are cut (`training.pretraining.passages:two_spans`); the one of a document without a
    second is neglected.
    """
    stage = plan.chains.pretraining(link)
    return 2 if stage.cut is not None or stage.objective.name in TWO_VIEWS else 1


def mined_queries(plan: Plan, link: Link) -> int:
    """Count the queries that a stage mines negatives for; 0 when unknown."""
    collection, split = plan.chains.taught(link)
    row, negatives = plan.bench.collections.get(collection), getattr(plan.chains.find_stage(link), "negatives", None)
    queries = (row and (row.splits.get(split) or row.queries)) or 0
    return min(queries, (negatives and negatives.queries) or queries)


def work_of(job: Job, plan: Plan) -> float | None:
    """Count the queries or documents of all steps of a training, the texts to embed, or the pairs to score."""
    if job.facts.trains:
        training = settings_of(plan, job)["settings"]["training"]
        return float(training["steps"] * training["batch_queries"])
    if job.facts.embeds:
        return float(text_rows(plan, job.wildcards))
    if job.facts.time == "pairs":
        link = link_of(job.asked)
        return float(mined_queries(plan, link) * (1 + plan.chains.stage(link).negatives.count))
    return None


# ---- time ------------------------------------------------------------------------------------------------------
def reckon(job: Job, plan: Plan, speeds: Speeds, units: float) -> float | None:
    """Estimate the seconds of a job; None for rules whose work is not known beforehand.

    Args:
        job: a planned job.
        plan: the plan it belongs to.
        speeds: rates of machines.
        units: millions of documents (or queries) that it reads.
    """
    questions = _questions(job, plan)
    if questions is None:
        return None
    if job.rule in speeds.jobs:
        base, slope = speeds.jobs[job.rule]
        return base + slope * units + speeds.question_seconds * questions
    if job.facts.embeds:
        settings, side = settings_of(plan, job), "document" if embeds_documents(job) else "query"
        if side == "document":
            speeds = _with_lines(speeds, plan, job.wildcards["collection"])
        tokens = text_rows(plan, job.wildcards) * _tokens(speeds, side, settings.get(f"{side}_tokens"))
        return _seconds(job, plan, speeds, tokens, "encode", settings.get("precision", "fp32"))
    if job.facts.trains:
        stage = settings_of(plan, job)["settings"]
        training = stage["training"]
        tokens = training["steps"] * training["batch_queries"] * _tokens_of_sample(job, plan, speeds, stage)
        if words := stage.get("masked_words"):  # documents that a step reads, too
            texts = words["texts"] or training["batch_queries"]
            tokens += training["steps"] * texts * _tokens(speeds, "document", words["max_tokens"])
        return _seconds(job, plan, speeds, tokens, "train", training["precision"])
    if job.facts.time == "pairs":
        return _seconds_of_pairs(job, plan, speeds)
    return None


def _seconds_of_pairs(job: Job, plan: Plan, speeds: Speeds) -> float | None:
    """Seconds of a cross-encoder that scores a positive and the mined negatives of each query."""
    link = link_of(job.asked)
    stage, queries = plan.chains.stage(link), mined_queries(plan, link)
    if stage.teacher is None or not queries:
        return None
    teacher = plan.chains.server(stage.teacher, link.scope)
    encoder, precision = plan.chains.encoder(teacher.method), plan.chains.scoring(teacher)["precision"]
    assert isinstance(encoder, PairSettings)
    pairs = queries * (1 + stage.negatives.count)
    tokens = pairs * min(speeds.text_tokens.query + speeds.text_tokens.document, encoder.max_tokens)
    reading = replace(job, wildcards={"model": teacher.method, "scope": teacher.scope})
    return _seconds(reading, plan, speeds, tokens, "encode", precision)


def _questions(job: Job, plan: Plan) -> int | None:
    """Count the questions that a language model of a package writes in a job; None: another model does."""
    settings = settings_of(plan, job) if job.facts.questions else {}
    writer = settings.get("writer")
    if writer is None:
        return 0
    return int(settings[job.facts.questions]) if writer["model"].startswith(PACKAGE) else None


def _tokens_of_sample(job: Job, plan: Plan, speeds: Speeds, stage: dict[str, Any]) -> int:
    objective, usual = stage["objective"], _with_lines(speeds, plan, job.wildcards["scope"]).text_tokens
    if job.facts.kind == "pretrain":
        return views(plan, link_of(job.asked)) * _tokens(speeds, "document", objective["max_tokens"])
    encoder, documents = plan.chains.encoder(job.wildcards["model"]), 1 + objective.get("negatives_per_query", 0)
    if isinstance(encoder, InitSettings):
        query, document = min(usual.query, encoder.query_tokens), min(usual.document, encoder.document_tokens)
        if memory := stage.get("memory"):  # each query is read with the documents that augment it
            query = memory["documents"] * (query + min(usual.document, memory["document_tokens"]))
        return query + (0 if stage.get("keep_index") else documents * document)
    assert isinstance(encoder, PairSettings)
    return documents * min(usual.query + usual.document, encoder.max_tokens)


def embeds_documents(job: Job) -> bool:
    """Test whether a job embeds a shard of a collection. Its time follows from the tokens of the documents."""
    return job.facts.embeds and "shard" in job.wildcards


def length_share(plan: Plan, speeds: Speeds, collection: str) -> float:
    """Compute the share of a usual document's tokens that a line of a user's table holds at most; 1 for all others."""
    row = plan.bench.collections.get(collection)
    folder = plan.bench.folders.get(row.held_out_of or collection) if row else None
    files = [Path(file) for file in folder.files.get("corpus", ())] if folder else []
    if not row or not files or not all(file.suffix in LINES and file.exists() for file in files):
        return 1.0
    letters = sum(file.stat().st_size for file in files) / max(row.planned_documents, 1)
    return min(1.0, letters / TOKEN_BYTES / speeds.text_tokens.document)


def _with_lines(speeds: Speeds, plan: Plan, collection: str) -> Speeds:
    usual = speeds.text_tokens
    document = math.ceil(usual.document * length_share(plan, speeds, collection))
    return speeds.model_copy(update={"text_tokens": usual.model_copy(update={"document": document})})


def _tokens(speeds: Speeds, side: str, limit: int | None) -> int:
    usual = int(getattr(speeds.text_tokens, side))
    return min(usual, limit) if limit else usual


def _seconds(job: Job, plan: Plan, speeds: Speeds, tokens: float, work: Any, precision: str) -> float:
    """Seconds in which the GPUs of a job, or the cores that it may use here, read tokens."""
    network = network_of(plan, job.wildcards["model"], job.wildcards["scope"])
    gpus, cores = plan.machines.gpus(job.rule), min(need(job.rule).threads, os.cpu_count() or 1)
    device = speeds.gpu if gpus else speeds.core(vendor_and_flags()[1])
    rate = (gpus or cores) * device.rate(work, precision)
    operations = FORWARD + (BACKWARD if work == "train" else 0)
    return operations * tokens * LAYER_WEIGHTS * network.layers * network.width**2 / rate


# ---- memory ----------------------------------------------------------------------------------------------------
def memory_mib(job: Job, plan: Plan, peak: float | None = None) -> int | None:
    """Compute the MiB that a job asks for; None for rules whose memory does not follow from their work.

    Args:
        job: a planned job.
        plan: the plan it belongs to.
        peak: MiB that a process of it had in a rehearsal, with the true network and batch but little data.
    """
    if job.facts.memory == "request":
        return None
    link = link_of(job.asked)
    if job.facts.memory == "mining":
        return mining_mib(_mined(plan, link))
    stage, machines, network = (
        settings_of(plan, job)["settings"],
        plan.machines,
        network_of(plan, link.method, link.scope),
    )
    processes, training = machines.processes(job.rule), stage["training"]
    share = -(-int(training["batch_queries"]) // (int(training["accumulation"]) * processes * machines.nodes(job.rule)))
    if job.facts.kind == "pretrain":
        heads = stage["objective"].get("head_layers", 0) if stage["objective"]["name"] in HEADED else 0
        network = network._replace(layers=network.layers + heads)
        batch = _pretraining_batch(stage, views(plan, link) * share)
        data = Data(_documents(plan, plan.chains.corpora(link)))
    else:
        batch, data = _batch(plan, link, stage, share), _mined(plan, link)
    if peak is not None:
        return asked(processes * (peak + data_mib(data)), LEAST_TRAINING_MIB)
    frozen = training.get("lora_rank") is not None
    return training_mib(network, batch, data, processes, machines.gpus(job.rule) > 0, frozen)


def _batch(plan: Plan, link: Link, stage: dict[str, Any], queries: int) -> BatchSize:
    """Size the batch of a fine-tuning: `queries` of a micro-batch in one process, and their documents."""
    encoder, settings = plan.chains.encoder(link.method), plan.chains.find_stage(link)
    if settings is not None and settings.additions:
        queries = math.ceil(ADDED * queries)
    documents = 1 + stage["objective"].get("negatives_per_query", 0)
    if isinstance(encoder, PairSettings):
        return _held(stage, queries * documents, encoder.max_tokens)
    assert isinstance(encoder, InitSettings)
    if stage.get("keep_index"):  # documents are not encoded
        return _held(stage, queries, encoder.query_tokens)
    return _held(stage, queries * (1 + documents), max(encoder.query_tokens, encoder.document_tokens))


def _pretraining_batch(stage: dict[str, Any], texts: int) -> BatchSize:
    """Size the batch of a pretraining: `texts` of a micro-batch in one process."""
    objective = stage["objective"]
    masked = PREDICTIONS.get(objective["name"], 0.0) * objective.get("mask_rate", 0.0)
    shares = {"tsdae": 1.0, "t5_coco": 2 * objective.get("corruption_rate", 0.0)}
    return _held(stage, texts, objective["max_tokens"], shares.get(objective["name"], masked))


def _held(stage: dict[str, Any], texts: int, tokens: int, predicted: float = 0.0) -> BatchSize:
    """Cut a batch to the texts that are held at once; `predicted` is a share of tokens."""
    training = stage["training"]
    texts = min(texts, training["cache_chunk"] or texts)
    half = training["precision"] != "fp32"
    return BatchSize(texts, tokens, predicted * texts * tokens, training["dropout"] != 0, half)


def _mined(plan: Plan, link: Link) -> Data:
    """Count what a stage's mined lists hold."""
    queries, negatives = mined_queries(plan, link), getattr(plan.chains.find_stage(link), "negatives", None)
    entries = queries * (1 + (negatives.count if negatives is not None else 0))
    return Data(_documents(plan, [plan.chains.taught(link)[0]]), entries / 1e6, queries / 1e6)


def _documents(plan: Plan, names: list[str]) -> float:
    rows = [plan.bench.collections.get(name) for name in names]
    return sum(row.planned_documents for row in rows if row) / 1e6


def largest_training(plan: Plan) -> int:
    """Compute the most MiB that a training of the main table's rows asks for; 0 where none is trained."""
    trained, largest = [name for name, facts in RULES.items() if facts.memory == "training"], 0
    trainings = {name: PretrainStage if RULES[name].kind == "pretrain" else FinetuneStage for name in trained}
    for method in (method for method in plan.methods if plan.method(method).kind == TRAINED):
        recipe = method.partition("@")[0]
        for name, stage in plan.chains.trained(recipe).chain.items():
            rule = next((rule for rule, stages in trainings.items() if isinstance(stage, stages)), "")
            scope = plan.columns[0].name if plan.columns and stage.scope != SCOPE else SCOPE
            largest = max(largest, memory_mib(Job(rule, {"model": recipe, "scope": scope, "stage": name}), plan) or 0)
    return largest
