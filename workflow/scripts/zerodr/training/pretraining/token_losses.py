"""Protocol of a loss that a paper adds to pretraining: of one text, from its vector and its tokens' states.

A paper that has one offers `token_loss(stage, encoder)` in its module `pretraining`.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from zerodr.config.stages import PretrainStage
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.papers import modules
from zerodr.training.pretraining.masking import Words

NO_MARK = -1


class TokenLoss:
    """Base of such losses. It is a mean over the texts that it counts.

    Attributes:
        name: of the loss in curves; share: of the share of texts that it counts.
    """

    name: str
    share: str

    @property
    def weight(self) -> float:
        """Factor on the loss in training."""
        raise NotImplementedError

    def marks(self, text: str, left: Words) -> np.ndarray:
        """Return a number for each token that is left of a text, -1 for none; (L,) int64."""
        raise NotImplementedError

    def count(self, marks: Sequence[np.ndarray]) -> int:
        """Count texts that the loss applies to."""
        raise NotImplementedError

    def total(self, vectors: Tensor, states: Tensor, marks: Tensor) -> Tensor:
        """Sum of the loss, without its weight, over the texts that it counts.

        Args:
            vectors: (n, D) of the texts; states: (n, L, d) of their tokens; marks: (n, L), -1 for none.
        """
        raise NotImplementedError


def token_loss(stage: PretrainStage, encoder: BiEncoder) -> TokenLoss | None:
    """Make the loss that a stage's settings ask for; None: no paper's."""
    losses = (paper.token_loss(stage, encoder) for paper in modules("pretraining"))
    return next((loss for loss in losses if loss is not None), None)
