"""Estimate the memory of a plan's trainings and mining jobs from their settings, models and collections."""

import json
import math
from types import SimpleNamespace
from typing import Any

from zerodr.config.stages import FinetuneStage, PretrainStage
from zerodr.config.training import InitSettings, PairSettings
from zerodr.operations.estimate.forecast import network_of
from zerodr.plan import Plan
from zerodr.plan.lines import SCOPE, Link, link_of
from zerodr.plan.memory import Batch, Data, mining_mib, training_mib

VIEWS = {"coco": 2, "condenser": 1, "ict": 2, "simcse": 2, "t5_coco": 2}  # texts of a document in a pretraining step
TRAINED = "trained"  # kind of the methods that train
RULES_OF_STAGES = ((FinetuneStage, "finetune"), (PretrainStage, "pretrain"))
ADDED = 1.5  # texts of a step that a paper adds something to, in units of the others: assumed
HEADED = ("coco", "condenser", "tsdae")  # those with layers of their own
PREDICTIONS = {"mlm": 1.0, "coco": 2.0, "condenser": 2.0}  # of a masked token: by the last layer, by Condenser's head


class Footprints:
    """Memory of a plan's jobs.

    Args:
        plan: the plan.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def mib(self, rule: str, wildcards: Any) -> int | None:
        """Compute the MiB that a job asks for; None for rules whose memory does not follow from their work."""
        if rule not in ("finetune", "pretrain", "mine_negatives"):
            return None
        named = SimpleNamespace(**{name: value for name, value in vars(wildcards).items() if isinstance(value, str)})
        link = link_of(named)
        if rule == "mine_negatives":
            return mining_mib(self._mined(link))
        params = json.loads(self.plan.settings(rule)(named))["settings"]
        machines, stage = self.plan.machines, params["settings"]
        processes = machines.processes(rule)
        network = network_of(self.plan, named.model, named.scope)
        share = processes * machines.nodes(rule)
        if rule == "pretrain":
            heads = stage["objective"].get("head_layers", 0) if stage["objective"]["name"] in HEADED else 0
            network = network._replace(layers=network.layers + heads)
            batch, data = _pretraining_batch(stage, share), Data(self._documents(self.plan.chains.corpora(link)))
        else:
            batch, data = self._batch(link, stage, share), self._mined(link)
        return training_mib(network, batch, data, processes, machines.gpus(rule) > 0)

    def _batch(self, link: Link, stage: dict[str, Any], share: int) -> Batch:
        """Size the batch of a fine-tuning, of one of `share` processes."""
        encoder, queries = self.plan.chains.encoder(link.method), _share(stage, share)
        settings = self.plan.chains.find_stage(link)
        if any(getattr(settings, name, None) for name in getattr(settings, "added", ())):
            queries = math.ceil(ADDED * queries)
        documents = 1 + stage["objective"].get("negatives_per_query", 0)
        if isinstance(encoder, PairSettings):
            return _held(stage, queries * documents, encoder.max_tokens)
        assert isinstance(encoder, InitSettings)
        if stage.get("keep_index"):  # documents are not encoded
            return _held(stage, queries, encoder.query_tokens)
        return _held(stage, queries * (1 + documents), max(encoder.query_tokens, encoder.document_tokens))

    def _mined(self, link: Link) -> Data:
        """Count what a stage's mined lists hold."""
        source, split = self.plan.chains.taught(link)
        row, stage = self.plan.bench.collections.get(source), self.plan.chains.find_stage(link)
        negatives = getattr(stage, "negatives", None)
        queries = (row and (row.splits.get(split) or row.queries)) or 0
        if negatives is not None:
            queries = min(queries, negatives.queries or queries)
        entries = queries * (1 + (negatives.count if negatives is not None else 0))
        return Data(self._documents([source]), entries / 1e6, queries / 1e6)

    def _documents(self, names: list[str]) -> float:
        rows = [self.plan.bench.collections.get(name) for name in names]
        return sum(row.planned_documents for row in rows if row) / 1e6


def largest_training(plan: Plan) -> int:
    """Compute the most MiB that a training of the main table's rows asks for; 0 where none is trained."""
    footprints, largest = Footprints(plan), 0
    for method in plan.methods:
        if plan.method(method).kind != TRAINED:
            continue
        recipe = method.partition("@")[0]
        for name, stage in plan.chains.trained(recipe).chain.items():
            rule = next((rule for kind, rule in RULES_OF_STAGES if isinstance(stage, kind)), None)
            scope = plan.columns[0].name if plan.columns and stage.scope != SCOPE else SCOPE
            needed = rule and footprints.mib(rule, SimpleNamespace(model=recipe, scope=scope, stage=name))
            largest = max(largest, needed or 0)
    return largest


def _share(stage: dict[str, Any], processes: int) -> int:
    """Count the queries, or documents, of a micro-batch in one process."""
    training = stage["training"]
    return -(-int(training["batch_queries"]) // (int(training["accumulation"]) * processes))


def _held(stage: dict[str, Any], texts: int, tokens: int, predicted: float = 0.0) -> Batch:
    """Cut a batch to the texts that are held at once; `predicted` is a share of tokens."""
    training = stage["training"]
    texts = min(texts, training["cache_chunk"] or texts)
    dropout, half = training["dropout"] != 0, training["precision"] != "fp32"
    return Batch(texts, tokens, predicted * texts * tokens, dropout, half)


def _pretraining_batch(stage: dict[str, Any], share: int) -> Batch:
    """Size the batch of a pretraining, of one of `share` processes."""
    objective = stage["objective"]
    texts = VIEWS.get(objective["name"], 1) * _share(stage, share)
    masked = PREDICTIONS.get(objective["name"], 0.0) * objective.get("mask_rate", 0.0)
    shares = {"tsdae": 1.0, "t5_coco": 2 * objective.get("corruption_rate", 0.0)}
    return _held(stage, texts, objective["max_tokens"], shares.get(objective["name"], masked))
