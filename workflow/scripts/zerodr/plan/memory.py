"""Compute the memory of trainings and of mining from their network, batch and data, by constants that were measured.

The figures behind the constants are in `benchmarks/memory.md`. Nothing was measured on a GPU: its constant is assumed.
"""

import math
from typing import NamedTuple

from zerodr.config.quantities import MEBI

STATE_BYTES, COPY_BYTES, LOADED_BYTES = 16, 12, 4  # a parameter: with gradient and moments; of a checkpoint; a weight
FLOAT_BYTES = 4
WIDTHS, SCORES, SCORES_DROPPED = 20, 1, 4  # numbers a token that a layer keeps for the backward pass: in units of its
# width, and of each attention score without and with dropout
HALF = 0.6  # times what bf16 keeps of float32's bytes
LOGITS = 2  # numbers a logit
LAYER_WEIGHTS, DECODER_WEIGHTS = 12, 16  # parameters of a transformer's layer, in units of its width squared
HOLES = 1.3  # times the bytes in use that a process holds
LIBRARIES_MIB, GPU_LIBRARIES_MIB = 500, 3000  # of a process; the second one is assumed
TOKENS_MIB, TOKENS_BYTES = 512, 1300  # most of remembered tokens, and of those of a text
MARGIN, STEP_MIB = 1.3, 500  # what is asked for, in units of what is expected; rounded up
LEAST_TRAINING_MIB, LEAST_MINING_MIB = 4000, 2000


class Network(NamedTuple):
    """A transformer: width, layers, attention heads of a layer, tokens of its vocabulary; T5 has decoder layers."""

    width: int
    layers: int
    heads: int
    vocabulary: int
    decoder: bool = False

    @property
    def parameters(self) -> int:
        """Count its weights."""
        layer = LAYER_WEIGHTS + (DECODER_WEIGHTS if self.decoder else 0)
        return self.layers * layer * self.width**2 + self.vocabulary * self.width


class BatchSize(NamedTuple):
    """Texts that one process holds at once.

    Attributes:
        texts: number of texts.
        tokens: of the longest one.
        predicted: tokens whose words are predicted.
        dropout: whether there is dropout.
        half: whether its arithmetic is bf16 or fp16.
    """

    texts: int
    tokens: int
    predicted: float = 0.0
    dropout: bool = True
    half: bool = False


class Data(NamedTuple):
    """Data of a training, in millions: documents of its collection, entries of mined lists, queries that are mined."""

    documents: float
    entries: float = 0.0
    queries: float = 0.0

    @property
    def distinct(self) -> float:
        """Estimate the millions of different documents in the lists, if each entry were drawn by chance."""
        return self.documents * (1 - math.exp(-self.entries / self.documents)) if self.documents else 0.0


def activation_bytes(network: Network, batch: BatchSize) -> float:
    """Estimate the bytes that a forward pass leaves for its backward pass, logits included."""
    layers = network.layers * (2 if network.decoder else 1)
    scores = (SCORES_DROPPED if batch.dropout else SCORES) * network.heads * batch.tokens
    numbers = batch.texts * batch.tokens * layers * (WIDTHS * network.width + scores) * (HALF if batch.half else 1)
    return FLOAT_BYTES * (numbers + LOGITS * batch.predicted * network.vocabulary)


def data_mib(data: Data) -> float:
    """Estimate the memory of mined texts in each process, and of tokens that it remembers."""
    remembered = min(TOKENS_MIB, data.distinct * 1e6 * TOKENS_BYTES / MEBI)
    return 60 + 100 * data.documents + 124 * data.entries + 1000 * data.distinct + remembered


def training_mib(
    network: Network, batch: BatchSize, data: Data, processes: int, on_gpu: bool, frozen: bool = False
) -> int:
    """Compute what a training asks for on a machine, in MiB.

    Args:
        network: that is trained.
        batch: of one process.
        data: that each process loads.
        processes: on the machine.
        on_gpu: weights, moments and activations are on GPUs, one a process.
        frozen: weights have neither gradients nor moments (LoRA).
    """
    weights = network.parameters / MEBI
    state, copy = (LOADED_BYTES, 2 * LOADED_BYTES * weights) if frozen else (STATE_BYTES, COPY_BYTES * weights)
    if on_gpu:
        each = GPU_LIBRARIES_MIB + LOADED_BYTES * weights + data_mib(data)
    else:
        each = LIBRARIES_MIB + data_mib(data)
        each += HOLES * (state * weights + activation_bytes(network, batch) / MEBI)
    return asked(processes * each + copy, LEAST_TRAINING_MIB)


def mining_mib(data: Data) -> int:
    """Compute what a mining job asks for, in MiB."""
    return asked(500 + 150 * data.documents + 1100 * data.queries + 124 * data.entries, LEAST_MINING_MIB)


def asked(expected: float, least: int) -> int:
    """Add a margin to the expected MiB, round up, and ask for `least` at least."""
    return max(least, STEP_MIB * math.ceil(MARGIN * expected / STEP_MIB))
