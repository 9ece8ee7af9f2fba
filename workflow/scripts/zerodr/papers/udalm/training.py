"""Add UDALM to a fine-tuning stage: masked words of unlabelled documents in every step, next to its loss.

`WordEncoder` is the network with its layer for masked words, `JointForward` passes queries and documents in one step.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zerodr.artifacts.stage import Stage
from zerodr.config.params import FinetuneParams
from zerodr.encoders.inference.token_store import TOKENS
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.encoders.pretraining.additions import NO_HEAD, PREDICTION, load_additions, write_additions
from zerodr.encoders.pretraining.condenser import HeadedEncoder
from zerodr.errors import ConfigError
from zerodr.papers.udalm.settings import KEY, GatedKeys, MaskedWordsSettings, words_of
from zerodr.training.additions import Addition, PaperTraining, Prepared, together
from zerodr.training.data.batches import WASTE
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.engine import Batches
from zerodr.training.loop.gradcache import Forward, Representation, Share, Texts
from zerodr.training.objectives.base import Objective, Stack
from zerodr.training.pretraining.corpora import PASSAGES, store_passages, warn_of_gated, whole_documents
from zerodr.training.pretraining.passages import PassageBatch, Passages, PassageStream
from zerodr.training.pretraining.span_forward import MASKED, SpanForward
from zerodr.training.pretraining.views import ViewMaker, Views

log = logging.getLogger("zerodr")
MAIN = "main"
WORDS = 8  # word of a seed: what the random numbers are for
LATE = MASKED[0]


@dataclass(frozen=True)
class JointBatch:
    """A batch of the stage, and documents."""

    main: Any
    documents: PassageBatch

    def shard(self, number: int, shards: int) -> JointBatch:
        """Return the `number`-th of `shards` equal slices of both, in order."""
        return JointBatch(self.main.shard(number, shards), self.documents.shard(number, shards))


class JointStream:
    """The batches of a stage, each with the documents of its step."""

    def __init__(self, main: Batches, documents: PassageStream) -> None:
        self.main, self.documents = main, documents

    def batch(self, step: int) -> JointBatch:
        """Return the batch of step `step`, a pure function of it."""
        return JointBatch(self.main.batch(step), self.documents.batch(step))


@dataclass(frozen=True)
class JointTexts(Texts):
    """Texts of a stage's batch, and masked documents; `groups` are those of both, the stage's first.

    Attributes:
        main: the stage's.
        views: masked documents.
    """

    main: Texts
    views: Views

    @classmethod
    def of(cls, main: Texts, views: Views) -> JointTexts:
        """Join both."""
        groups = [*main.groups, *views.groups]
        return cls(main.tokens, main.documents, groups, main, views, features=main.features, rows=main.rows)


@dataclass
class JointForward(Forward):
    """Passes of a stage, and after them those of masked documents, which have no vectors but a loss of their own.

    Attributes:
        main: passes of the stage, whatever they are.
        words: passes of masked documents.
        weight: factor on their loss, a mean over the predicted tokens of the micro-batch of all processes.
    """

    main: Forward = field(kw_only=True)
    words: SpanForward = field(kw_only=True)
    weight: float = field(kw_only=True)

    def prepare(self, batch: JointBatch, group: Group) -> Share:
        """Prepare this process's share of both."""
        self.main.by_group, self.main.shared = self.by_group, self.shared
        share, documents = self.main.prepare(batch.main, group), self.words.prepare(batch.documents, group)
        return replace(share, texts=JointTexts.of(share.texts, documents.texts))

    def close(self) -> None:
        """Store tokens of both."""
        self.main.close()
        self.words.close()

    def row_numbers(self, texts: JointTexts, number: int) -> list[int]:
        """List the rows of a group's vectors; masked documents have none."""
        return self.main.row_numbers(texts.main, number) if number < len(texts.main.groups) else []

    def totals(self, texts: JointTexts, group: Group) -> dict[str, float | Tensor]:
        """Return divisors of the stage's losses of groups, and of masked words."""
        return {**self.main.totals(texts.main, group), KEY: self.words.totals(texts.views, group)[LATE]}

    def run(
        self, texts: JointTexts, number: int, seed: Sequence[int], totals: Mapping[str, float | Tensor]
    ) -> tuple[Tensor | None, dict[str, Tensor]]:
        """Run a group of the stage, or compute the share of masked documents in their loss, weighted."""
        first = len(texts.main.groups)
        if number < first:
            return self.main.run(texts.main, number, seed, totals)
        losses = self.words.run(texts.views, number - first, [*seed, WORDS], {LATE: totals[KEY]})[1]
        return None, {KEY: self.weight * losses[LATE]}

    def view(self, share: Share, leaf: Tensor, group: Group) -> Any:
        """Return what the stage's objective sees."""
        return self.main.view(replace(share, texts=share.texts.main), leaf, group)

    def represent(
        self, texts: JointTexts, seed: Sequence[int], totals: Mapping[str, float | Tensor] | None = None
    ) -> Representation:
        """Encode the stage's texts; with caching, masked documents pass the network once, in the backward pass."""
        totals, held = totals or {}, self.main.represent(texts.main, seed, totals)
        numbers = range(len(texts.main.groups), len(texts.groups))
        passes = [*held.passes, *(self.run(texts, number, seed, totals) for number in numbers)] if held.passes else []
        return Representation(self, texts, seed, totals, held.leaf, passes)


class WordEncoder(BiEncoder):
    """A tied bi-encoder with a layer that predicts masked words, which is trained, resumed and saved with it.

    Args:
        model: the bi-encoder.
        seed: of a fresh layer.

    Raises:
        ModelError: it has two towers, or is of a family that predicts no tokens.
    """

    def __init__(self, model: BiEncoder, seed: int) -> None:
        super().__init__(model.contract, model.tokenizer, dict(model.towers.items()), model.precision)  # type: ignore[arg-type]  # towers
        prediction = HeadedEncoder(self, seed=seed).prediction
        assert prediction is not None, "asked for by default"
        self.prediction = prediction

    def headed(self) -> HeadedEncoder:
        """Give the network as pretraining takes it, with the same weights."""
        headed = HeadedEncoder(self, predicts=False)
        headed.prediction = self.prediction
        return headed

    def take(self, folder: Path) -> str:
        """Load the prediction layer of a model folder.

        Returns:
            where it comes from: `pretraining`, the `checkpoint`, or `fresh`, where the folder has none.
        """
        return load_additions(self.headed(), folder, "init")["prediction"]

    def save(self, folder: Path) -> None:
        """Write the bi-encoder as a model folder, and the prediction layer into its subfolder of pretraining."""
        super().save(folder)
        weights = {f"{PREDICTION}{name}": value for name, value in self.prediction.state_dict().items()}
        write_additions(folder, weights, NO_HEAD)


class MaskedWords(Addition):
    """Masked words of whole documents (input `corpora`). The output holds the layer that predicts them.

    Raises:
        ConfigError: documents can't be shared equally by the processes, there are fewer than a step takes, or the model
            is no plain bi-encoder.
        CollectionError: a corpus without a document.
        ModelError: the model can't predict masked words.
    """

    def __init__(self, stage: Stage, params: FinetuneParams) -> None:
        super().__init__(stage, params)
        settings, training = words_of(params.settings), params.settings.training
        assert settings is not None, "it was asked for"
        self.settings: MaskedWordsSettings = settings
        self.texts, self.weight = settings.texts_of(training), settings.weight_of(training)
        shares = training.accumulation * params.workers
        if self.texts % shares:
            problem = (
                f"{self.texts} documents can't be shared equally by {training.accumulation} micro-batches x "
                f"{params.workers} processes"
            )
            raise ConfigError(f"{stage.spec.name()}: {KEY}.texts", problem, f"make it a multiple of {shares}")

    @classmethod
    def asked(cls, stage: Stage, params: FinetuneParams) -> bool:
        """Return whether the settings have `masked_words` of a weight above 0."""
        settings = words_of(params.settings)
        together(stage, KEY, settings is not None, "corpora")
        return settings is not None and settings.weight_of(params.settings.training) > 0

    def prepare(self) -> None:
        """Write the documents into one file."""
        keys = GatedKeys.of(self.params)
        warn_of_gated(self.stage.spec.name(), () if keys is None else keys.left_out)
        folders = [path.parent for path in self.stage.paths("corpora")]
        read = partial(whole_documents, folders, self.stage.path("model"), self.params.title_join)
        self.stage.note(left_out=store_passages(self.stage.state, read))

    def model(self, model: Any) -> WordEncoder:
        """Add the layer that predicts masked words: the model's own from pretraining, else a fresh one."""
        if type(model) is not BiEncoder:
            what = f"are for a plain bi-encoder, found a {type(model).__name__}"
            raise ConfigError(f"{self.stage.spec.name()}: {KEY}", what, "leave them out")
        extended = WordEncoder(model, int(np.random.SeedSequence([*self.seed, WORDS]).generate_state(1)[0]))
        source = extended.take(self.stage.path("model"))
        if source == "fresh":
            name = self.stage.spec.name()
            log.warning("%s: its start has no layer that predicts masked words, a fresh one learns from here on", name)
        self.facts[KEY] = {"weight": self.weight, "texts": self.texts, "prediction": source}
        return extended

    def forward(self, forward: Forward) -> JointForward:
        """Pass masked documents through the network after the stage's texts."""
        model, passages = forward.model, Passages(self.stage.state / PASSAGES)
        waste, seed = WASTE[torch.device(forward.device).type], [*self.seed, WORDS]
        maker = ViewMaker(model, self.settings.objective, passages, False, seed, waste, forward.chunk)
        words = SpanForward(model.headed(), passages, forward.device, forward.chunk, maker=maker)
        words.shared.stores += filter(None, [maker.take_stored(TOKENS)])
        self.facts[KEY] |= {"corpora": passages.corpora}
        plain = (model, forward.examples, forward.device, forward.chunk)
        return JointForward(*plain, main=forward, words=words, weight=self.weight)

    def batches(self, batches: Batches) -> JointStream:
        """Extend batches by documents."""
        count = sum(self.facts[KEY]["corpora"].values())
        documents = PassageStream(np.arange(count), self.texts, [*self.seed, WORDS], f"{KEY}.texts")
        return JointStream(batches, documents)

    def objective(self, objective: Objective, prepared: Prepared) -> Stack:
        """Scale the stage's loss by what masked words leave."""
        return Stack({MAIN: (1 - self.weight, objective)})


TRAINING = PaperTraining((MaskedWords,))
