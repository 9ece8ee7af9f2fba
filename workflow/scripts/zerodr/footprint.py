"""Estimate the memory of a plan's trainings and mining jobs from their settings, models and collections."""

import json
from types import SimpleNamespace
from typing import Any

from zerodr.config.training import InitSettings, PairSettings
from zerodr.forecast import network_of
from zerodr.plan import Plan
from zerodr.plan.lines import Link, link_of
from zerodr.plan.memory import Batch, Data, mining_mib, training_mib

VIEWS = {"coco": 2, "condenser": 1, "ict": 2, "simcse": 2, "t5_coco": 2}  # texts of a document in a pretraining step
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
            batch, data = self._batch(named.model, stage, share), self._mined(link)
        return training_mib(network, batch, data, processes, machines.gpus(rule) > 0)

    def _batch(self, model: str, stage: dict[str, Any], share: int) -> Batch:
        """Size the batch of a fine-tuning, of one of `share` processes."""
        training, encoder = stage["training"], self.plan.chains.encoder(model)
        queries = -(-training["batch_queries"] // (training["accumulation"] * share))
        documents = 1 + stage["objective"].get("negatives_per_query", 0)
        if isinstance(encoder, PairSettings):
            texts, tokens = queries * documents, encoder.max_tokens
        else:
            assert isinstance(encoder, InitSettings)
            texts, tokens = queries * (1 + documents), max(encoder.query_tokens, encoder.document_tokens)
        return Batch(min(texts, training["cache_chunk"] or texts), tokens)

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


def _pretraining_batch(stage: dict[str, Any], share: int) -> Batch:
    """Size the batch of a pretraining, of one of `share` processes."""
    objective, training = stage["objective"], stage["training"]
    texts = VIEWS.get(objective["name"], 1) * -(-training["batch_queries"] // (training["accumulation"] * share))
    texts = min(texts, training["cache_chunk"] or texts)
    tokens = objective["max_tokens"]
    shares = {"tsdae": 1.0, "t5_coco": 2 * objective.get("corruption_rate", 0.0)}
    masked = PREDICTIONS.get(objective["name"], 0.0) * objective.get("mask_rate", 0.0)
    return Batch(texts, tokens, shares.get(objective["name"], masked) * texts * tokens)
