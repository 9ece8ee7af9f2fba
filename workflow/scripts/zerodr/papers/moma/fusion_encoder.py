"""T5 with fusion-in-decoder: a query and the documents that augment it become one vector (MoMA eq. 5).

Query and documents pass the encoder one by one; the decoder's first position looks at all their states at once. Its
cross-attention knows no positions, so the order of documents does not matter, and without documents the vector is the
plain encoder's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from zerodr.config.starts import OF_T5
from zerodr.encoders.folder.contract import EncoderContract, Precision, Side
from zerodr.encoders.network.moving import pad
from zerodr.encoders.network.towers import DTYPES
from zerodr.errors import ModelError
from zerodr.papers.moma.augmented_encoder import AugmentedEncoder, Grounded
from zerodr.papers.moma.fid_attention import NEAR, ROUNDED, CrossAttention, check_mass


class FusionEncoder(AugmentedEncoder):
    """A T5 bi-encoder whose decoder reads a query and its documents at once."""

    def pad(self, rows: Sequence[Any]) -> dict[str, Tensor]:
        """As the bi-encoder's; of `Grounded` rows also `aug_ids`, `aug_mask` (M, La) of the M distinct documents of the
        batch, and `aug_place`, `aug_there` (B, K): which of them a query has."""
        if not rows or not isinstance(rows[0], Grounded):
            return super().pad(rows)
        features = super().pad([row.query for row in rows])
        numbers: dict[bytes, int] = {}
        distinct = [[np.asarray(ids, np.int32).tobytes() for ids in row.documents] for row in rows]
        indices = [[numbers.setdefault(ids, len(numbers)) for ids in row] for row in distinct]
        width = max(map(len, indices))
        if not width:
            return features
        ids, mask = pad([np.frombuffer(ids, np.int32) for ids in numbers], self.tokenizer.pad_token_id)
        index = torch.tensor([row + [0] * (width - len(row)) for row in indices])
        there = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in indices])
        return features | {"aug_ids": ids, "aug_mask": mask, "aug_place": index, "aug_there": there}

    def encode(self, features: dict[str, Tensor], side: Side) -> Tensor:
        """Vectors of one batch, (B, D) float32; fused with documents where the batch has them."""
        if "aug_ids" not in features:
            return super().encode(features, side)
        tower = self.tower(side)
        device, dtype = features["input_ids"].device.type, DTYPES[self.precision]
        with torch.autocast(device, dtype, enabled=dtype != torch.float32):
            states, mask, _ = self.fused_states(features, side)
            hidden = self.decoded(states, mask, side).last_hidden_state
        return tower.vectors(hidden, mask)

    def fused_states(self, features: dict[str, Tensor], side: Side) -> tuple[Tensor, Tensor, Tensor]:
        """Encoder states of each query followed by those of its documents.

        Returns:
            states (B, Lq + K La, d), mask and segments (B, Lq + K La): 0 the query, k its k-th document.
        """
        encoder, ids, mask = self.tower(side).transformer.encoder, features["input_ids"], features["attention_mask"]
        states = encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        segments = torch.zeros_like(ids)
        if "aug_ids" not in features:
            return states, mask, segments
        added = encoder(input_ids=features["aug_ids"], attention_mask=features["aug_mask"]).last_hidden_state
        index, there = features["aug_place"], features["aug_there"]
        there_tokens = features["aug_mask"][index] * there[..., None]
        numbers = torch.arange(1, 1 + index.shape[1], device=ids.device)[None, :, None].expand_as(there_tokens)
        return (
            torch.cat([states, added[index].flatten(1, 2)], 1),
            torch.cat([mask, there_tokens.flatten(1)], 1),
            torch.cat([segments, numbers.flatten(1)], 1),
        )

    def decoded(self, states: Tensor, mask: Tensor, side: Side, **more: Any) -> Any:
        """The decoder's outputs at its start token, over encoder states (B, T, d) with a mask (B, T)."""
        transformer = self.tower(side).transformer
        start = mask.new_full((len(mask), 1), transformer.config.decoder_start_token_id)
        return transformer.decoder(
            input_ids=start, encoder_hidden_states=states, encoder_attention_mask=mask, use_cache=False, **more
        )

    @classmethod
    def load(cls, folder: Path, precision: Precision = "fp32", contract: EncoderContract | None = None) -> Self:
        """As every augmented encoder's.

        Raises:
            ModelError: as the bi-encoder's; or it is no T5 encoder-decoder that both sides share.
        """
        model = super().load(folder, precision, contract)
        if model.contract.pooling != OF_T5 or model.contract.towers != "tied":
            actual = f"{model.contract.pooling} and {model.contract.towers} towers"
            problem = f"has pooling {actual}; fusion-in-decoder needs {OF_T5} and tied ones"
            raise ModelError(folder, problem, "start from a T5 encoder-decoder")
        return model


@contextmanager
def plain_attention(model: nn.Module) -> Iterator[None]:
    """Attention that gives its probabilities, for as long as this is open."""
    kinds = {
        module: cast(Any, module).config._attn_implementation
        for module in model.modules()
        if hasattr(module, "set_attn_implementation")
    }
    for module in kinds:
        cast(Any, module).set_attn_implementation("eager")
    try:
        yield
    finally:
        for module, kind in kinds.items():
            cast(Any, module).set_attn_implementation(kind)


def cross_attention(
    model: FusionEncoder, features: dict[str, Tensor], value_norms: bool = False
) -> tuple[Tensor, CrossAttention, Tensor, Tensor]:
    """Vectors of grounded queries with what the decoder looked at.

    Args:
        model: in evaluation mode, since dropout would change the sums. Below fp32 its probabilities are rounded, and
            scaled to sum 1 again.
        features: of `model.pad` on the model's device.

    Returns:
        vectors (B, D), attention, segments and mask (B, T).

    Raises:
        ModelError: the model is in training mode, or its attention gives no probabilities.
    """
    if model.training:
        raise ModelError(model.contract.source, "is in training mode, where dropout changes attention", "call eval()")
    tower, dtype = model.tower("query"), DTYPES[model.precision]
    blocks, rounded = tower.transformer.decoder.block, dtype != torch.float32
    arithmetic = torch.autocast(features["input_ids"].device.type, dtype, enabled=rounded)
    seen: list[tuple[Any, Tensor]] = []

    def look(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        seen.append((module, kwargs["key_value_states"]))

    hooks = [block.layer[1].EncDecAttention.register_forward_pre_hook(look, with_kwargs=True) for block in blocks]
    try:
        with torch.no_grad(), arithmetic, plain_attention(tower.transformer):
            states, mask, segments = model.fused_states(features, "query")
            outputs = model.decoded(states, mask, "query", output_attentions=True)
    finally:
        for hook in hooks:
            hook.remove()
    given = [layer for layer in outputs.cross_attentions or () if layer is not None]
    if len(given) != len(blocks):
        raise ModelError(
            model.contract.source,
            f"its attention implementation gave probabilities of {len(given)} of "
            f"{len(blocks)} decoder layers, so documents can't be weighed",
            "use an attention implementation that returns them, such as eager",
        )
    with torch.no_grad(), arithmetic:
        attention = CrossAttention(
            torch.stack([layer[:, :, 0].float() for layer in given]),
            torch.stack([_heads(module, module.v(keys)).norm(dim=-1) for module, keys in seen])
            if value_norms
            else None,
        )
    check_mass(attention, mask, model.contract.source, ROUNDED if rounded else NEAR)
    if rounded:
        shares = attention.probabilities
        attention = attention._replace(probabilities=shares / shares.sum(-1, keepdim=True))
    return tower.vectors(outputs.last_hidden_state, mask), attention, segments, mask


def _heads(module: Any, projected: Tensor) -> Tensor:
    """(B, T, H dk) -> (B, H, T, dk) float32."""
    return projected.unflatten(-1, (module.n_heads, module.key_value_proj_dim)).transpose(1, 2).float()
