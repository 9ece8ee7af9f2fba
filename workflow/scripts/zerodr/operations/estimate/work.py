"""Estimate the seconds of a job from its work and a usual speed: operations of its model, or documents it reads."""

import json
import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from zerodr.config.families import PACKAGE
from zerodr.config.speeds import Speeds
from zerodr.config.training import InitSettings, PairSettings
from zerodr.operations.estimate.forecast import EMBEDDING, USUAL_DIMENSION, USUAL_LAYERS, Job, model_shape, text_rows
from zerodr.plan import Plan
from zerodr.plan.lines import link_of
from zerodr.plan.resources import need

FORWARD, TRAINING = 2, 6  # operations a parameter and token
USUAL_SHAPE = (USUAL_DIMENSION, USUAL_LAYERS)  # of BERT-base, for models whose folder is not here yet
PARAMETERS = 12  # of a transformer's layer, in units of its width squared
TRAINED = ("finetune", "pretrain", "train_main", "train_augmenter")
VIEWS = {"coco": 2, "condenser": 2}  # texts that a pretraining step reads of each document


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
    if job.rule in EMBEDDING:
        settings = json.loads(plan.settings(job.rule)(SimpleNamespace(**job.wildcards)))["settings"]
        side = "document" if "shard" in job.wildcards else "query"
        tokens = text_rows(plan, job.wildcards) * _tokens(speeds, side, settings.get(f"{side}_tokens"))
        return _seconds(job, plan, speeds, FORWARD * tokens, "encode", settings.get("precision", "fp32"))
    if job.rule in TRAINED:
        stage = json.loads(plan.settings(job.rule)(SimpleNamespace(**job.wildcards)))["settings"]["settings"]
        training, precision = stage["training"], stage["training"]["precision"]
        tokens = training["steps"] * training["batch_queries"] * _tokens_of_sample(job, plan, speeds, stage)
        if words := stage.get("masked_words"):  # documents that a step reads, too
            texts = words["texts"] or training["batch_queries"]
            tokens += training["steps"] * texts * _tokens(speeds, "document", words["max_tokens"])
        return _seconds(job, plan, speeds, TRAINING * tokens, "train", precision)
    if job.rule == "score_pairs":
        return _seconds_of_pairs(job, plan, speeds)
    return None


def _seconds_of_pairs(job: Job, plan: Plan, speeds: Speeds) -> float | None:
    """Seconds of a cross-encoder that scores a positive and the mined negatives of each query."""
    link = link_of(SimpleNamespace(**job.wildcards))
    stage, (collection, split) = plan.chains.stage(link), plan.chains.taught(link)
    row = plan.bench.collections.get(collection)
    queries = (row and (row.splits.get(split) or row.queries)) or 0
    if stage.teacher is None or not queries:
        return None
    teacher = plan.chains.server(stage.teacher, link.scope)
    encoder, precision = plan.chains.encoder(teacher.method), plan.chains.scoring(teacher)["precision"]
    assert isinstance(encoder, PairSettings)
    pairs = min(queries, stage.negatives.queries or queries) * (1 + stage.negatives.count)
    tokens = pairs * min(speeds.text_tokens.query + speeds.text_tokens.document, encoder.max_tokens)
    reading = replace(job, wildcards={"model": teacher.method, "scope": teacher.scope})
    return _seconds(reading, plan, speeds, FORWARD * tokens, "encode", precision)


def _questions(job: Job, plan: Plan) -> int | None:
    """Count the questions that a language model of a package writes in a job; None: another model does."""
    if job.rule not in ("generate_queries", "hold_out_items"):
        return 0
    settings = json.loads(plan.settings(job.rule)(SimpleNamespace(**job.wildcards)))["settings"]
    writer = settings.get("writer")
    if writer is None:
        return 0
    count: int = settings["questions"] if job.rule == "hold_out_items" else settings["count"]
    return count if writer["model"].startswith(PACKAGE) else None


def _tokens_of_sample(job: Job, plan: Plan, speeds: Speeds, stage: dict[str, Any]) -> int:
    objective = stage["objective"]
    if job.rule == "pretrain":
        return VIEWS.get(objective["name"], 1) * _tokens(speeds, "document", objective["max_tokens"])
    encoder, documents = plan.chains.encoder(job.wildcards["model"]), 1 + objective.get("negatives_per_query", 0)
    usual = speeds.text_tokens
    if isinstance(encoder, InitSettings):
        query, document = min(usual.query, encoder.query_tokens), min(usual.document, encoder.document_tokens)
        if memory := stage.get("memory"):  # each query is read with the documents that augment it
            query = memory["documents"] * (query + min(usual.document, memory["document_tokens"]))
        return query + (0 if stage.get("keep_index") else documents * document)
    assert isinstance(encoder, PairSettings)
    return documents * min(usual.query + usual.document, encoder.max_tokens)


def _tokens(speeds: Speeds, side: str, limit: int | None) -> int:
    usual = int(getattr(speeds.text_tokens, side))
    return min(usual, limit) if limit else usual


def _seconds(job: Job, plan: Plan, speeds: Speeds, operations: float, work: Any, precision: str) -> float:
    """Seconds of operations a parameter on the GPUs of a job, or on the cores it may use here."""
    width, layers = model_shape(plan, job.wildcards["model"], job.wildcards["scope"]) or USUAL_SHAPE
    gpus = plan.machines.gpus(job.rule)
    cores = min(need(job.rule).threads, os.cpu_count() or 1)
    rate = gpus * speeds.gpu.rate(work, precision) if gpus else cores * speeds.cpu_core.rate(work, precision)
    return operations * PARAMETERS * layers * width**2 / rate
