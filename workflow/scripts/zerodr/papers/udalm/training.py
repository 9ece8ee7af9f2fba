"""Add UDALM to a fine-tuning stage: masked words of unlabelled documents in every step, next to its loss."""

import logging
from functools import partial
from typing import Any

import numpy as np
import torch

from zerodr.artifacts.stage import Stage
from zerodr.config.params import FinetuneParams
from zerodr.encoders.inference.token_store import TOKENS
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.errors import ConfigError
from zerodr.papers.udalm.joint_batches import WORDS, JointForward, JointStream
from zerodr.papers.udalm.settings import KEY, MaskedWordsSettings, WordParams, words_of
from zerodr.papers.udalm.word_encoder import WordEncoder
from zerodr.training.additions import Addition, PaperTraining, Prepared, together
from zerodr.training.data.grouping import WASTE
from zerodr.training.loop.engine import Batches
from zerodr.training.loop.gradcache import Forward
from zerodr.training.objectives.base import Objective, Stack
from zerodr.training.pretraining.corpora import PASSAGES, store_passages, warn_of_gated, whole_documents
from zerodr.training.pretraining.passages import Passages, PassageStream
from zerodr.training.pretraining.span_forward import SpanForward
from zerodr.training.pretraining.views import ViewMaker

log = logging.getLogger("zerodr")
MAIN = "main"


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
            raise ConfigError(
                f"{stage.spec.name()}: {KEY}.texts",
                f"{self.texts} documents can't be shared equally by {training.accumulation} micro-batches x "
                f"{params.workers} processes",
                f"make it a multiple of {shares}",
            )

    @classmethod
    def asked(cls, stage: Stage, params: FinetuneParams) -> bool:
        """Return whether the settings have `masked_words` of a weight above 0."""
        settings = words_of(params.settings)
        together(stage, KEY, settings is not None, "corpora")
        return settings is not None and settings.weight_of(params.settings.training) > 0

    def prepare(self) -> None:
        """Write the documents into one file."""
        assert isinstance(self.params, WordParams), "as of all fine-tuning"
        warn_of_gated(self.stage.spec.name(), self.params.left_out)
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
