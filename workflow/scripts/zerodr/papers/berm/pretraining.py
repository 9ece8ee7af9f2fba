"""R1 next to a pretraining objective: the units of the texts that it encodes, and their balance  # R1: BERM eq. 4

R1 needs a text's vector and the states of its tokens, nothing else. So it is a loss of a text's own, as the prediction
of masked tokens is, taken from the same pass through the network and of the same view: the words that are masked there
are masked in the units, too, and the vector is the one that COCO compares. Masking changes no token's position. Units
are those of the text as it was. They are cut from the characters that are left of it: of a long document a random
stretch, whose ends may be parts of sentences.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from zerodr.config.stages import PretrainStage
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.papers.berm.losses import pool_units, unit_balance
from zerodr.papers.berm.segment_units import check_tokenizer, lowered_offsets, text_units
from zerodr.papers.berm.settings import BalanceKeys, BalanceSettings
from zerodr.papers.berm.training import check_space
from zerodr.papers.berm.unit_spans import Token
from zerodr.training.pretraining.masking import NO_MARK, TokenLoss, Words

R1 = "balance.r1"


class Balance(TokenLoss):
    """Cuts texts into units, and measures how evenly their vectors draw on them  # BERM eq. 4

    Args:
        settings: weight and form of the loss, and how texts are cut.
        encoder: whose texts and vectors they are.

    Raises:
        ModelError: its vectors have another size than its token states, or its tokenizer gives no characters of tokens.
    """

    def __init__(self, settings: BalanceSettings, encoder: BiEncoder) -> None:
        check_space(encoder, settings.unit_space, "balance")
        check_tokenizer(encoder.contract.source, encoder.tokenizer, settings.cut)
        self.settings, self.tokenizer, self.lowercase = settings, encoder.tokenizer, encoder.contract.lowercase
        self.projections = encoder.tower("document").projections if settings.unit_space == "head" else ()

    name, share = R1, "balance.share"

    @property
    def weight(self) -> float:
        """Return the weight of R1."""
        return self.settings.w_r1

    def marks(self, text: str, left: Words) -> np.ndarray:
        """Unit of each token that is left of a text, from 0, -1 where it belongs to none; (L,) int64."""
        marks, tokens = np.full(len(left), NO_MARK, np.int64), self._tokens(text, left)
        if tokens:
            begin, end = tokens[0].start, tokens[-1].end
            shifted = [token._replace(start=token.start - begin, end=token.end - begin) for token in tokens]
            for number, unit in enumerate(text_units(text[begin:end], shifted, self.settings.cut, self.tokenizer)):
                marks[unit.first : unit.stop] = number
        return marks

    def _tokens(self, text: str, left: Words) -> list[Token]:
        """List tokens that have characters, with offsets in the text as it was before it was lower-cased."""
        assert left.characters is not None, "the view maker asks for characters"
        back = lowered_offsets(text) if self.lowercase else range(len(text))
        rows = zip(left.ids.tolist(), left.characters.tolist(), strict=True)
        return [
            Token(index, number, back[start], back[end - 1] + 1)
            for index, (number, (start, end)) in enumerate(rows)
            if end > start
        ]

    def total(self, vectors: Tensor, states: Tensor, unit_ids: Tensor) -> Tensor:
        """Sum of R1, without its weight, over the texts of at least two units.

        Args:
            vectors: (n, D) of the texts; states: (n, L, d) of their tokens; unit_ids: (n, L), -1 for none.
        """
        units, valid = pool_units(states, unit_ids, max(1, int(unit_ids.max()) + 1))
        for project in self.projections:
            units = project(units)
        how = self.settings
        return unit_balance(vectors, units, valid, "sum", how.similarity, how.temperature).sum()

    def count(self, marks: Sequence[np.ndarray]) -> int:
        """Texts that R1 counts: those of at least two units."""
        return sum(int(row.max(initial=NO_MARK)) > 0 for row in marks)


def token_loss(stage: PretrainStage, encoder: BiEncoder) -> Balance | None:
    """R1 next to a stage's objective; None where the stage has none, or of weight 0."""
    keys = BalanceKeys.of(stage)
    return Balance(keys.balance, encoder) if keys is not None and keys.balance.w_r1 else None
