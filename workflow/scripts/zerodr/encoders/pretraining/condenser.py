"""A bi-encoder with what pretraining adds to it: Condenser's head, the prediction of masked tokens, or a small decoder.

Condenser's head reads the last layer's [CLS] and an early layer's tokens, [h^L[0]; h^skip[1:]]  # COCO-DR, specs 1.4.
So masked tokens can be predicted well only if [CLS] sums the text up. TSDAE's decoder reads the text's vector and the
tokens before each one. Both are layers of the backbone's own class and configuration.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from zerodr.encoders.network.towers import DTYPES, T5_FAMILY, Tower
from zerodr.encoders.network.trainable import SHARED, BiEncoder
from zerodr.encoders.pretraining.additions import save_additions
from zerodr.encoders.pretraining.prediction import Prediction, fresh
from zerodr.errors import ModelError

FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert")
Kind = Literal["condenser", "decoder", "none"]
FAR = -1e9  # added to the attention of positions that must not be seen


class HeadedEncoder(nn.Module):
    """A tied bi-encoder, extra layers and a prediction layer; `save` writes the bi-encoder alone.

    Args:
        encoder: its backbone is BERT-like.
        kind: what extra layers are: Condenser's head, or TSDAE's decoder.
        layers: extra layers; 0 for none.
        predicts: with a prediction layer.
        skip: layer whose tokens Condenser's head reads (0: embeddings). None: the middle one.
        backbone_dropout: False keeps the backbone in evaluation mode while training, as COCO-DR's code does.
        seed: of fresh weights.

    Raises:
        ModelError: two towers, a backbone of another family, or a layer that it has not.
    """

    def __init__(
        self,
        encoder: BiEncoder,
        kind: Kind = "none",
        layers: int = 0,
        predicts: bool = True,
        skip: int | None = None,
        backbone_dropout: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.kind = kind
        source = encoder.contract.source
        if encoder.contract.towers != "tied":
            raise ModelError(
                source,
                "has two towers; pretraining is for one network",
                "set towers: tied, and split them in a later stage's init",
            )
        self.encoder, self.backbone_dropout = encoder, backbone_dropout
        if layers or predicts:
            check_family(source, self.backbone.config, bool(layers))
        depth = len(layers_of(self.backbone)) if kind == "condenser" else 0
        self.skip = depth // 2 if skip is None else skip
        if kind == "condenser" and not self.skip < depth:
            raise ModelError(source, f"has {depth} layers, skip_layer {skip} is not below its last", "lower skip_layer")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = nn.ModuleList(_new_layers(self.backbone, layers))
            self.prediction = Prediction(self.backbone.config, self._table.shape) if predicts else None
            for module in (self.layers, self.prediction):
                if module is not None:
                    fresh(module, getattr(self.backbone.config, "initializer_range", 0.02))

    @property
    def tower(self) -> Tower:
        """The one network."""
        return self.encoder.towers[SHARED]  # type: ignore[return-value]

    @property
    def backbone(self) -> Any:
        """The transformers module."""
        return self.tower.transformer

    @property
    def _table(self) -> Tensor:
        """Embeddings of the vocabulary, (V, width)."""
        return self.backbone.get_input_embeddings().weight

    @property
    def dtype(self) -> torch.dtype:
        """Arithmetic of the transformer and of extra layers."""
        return DTYPES[self.encoder.precision]

    def train(self, mode: bool = True) -> HeadedEncoder:
        """Training mode; the backbone stays in evaluation mode without `backbone_dropout`."""
        super().train(mode)
        if not self.backbone_dropout:
            self.encoder.eval()
        return self

    def encode(self, features: dict[str, Tensor], side: str = "document") -> Tensor:
        """Vectors of one padded batch, (n, D) float32."""
        return self.encoder.encode(features, side)  # type: ignore[arg-type]

    def states(self, features: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors (n, D) float32, last hidden states (n, L, d), and those of layer `skip` (n, L, d)."""
        ids, mask = features["input_ids"], features["attention_mask"]
        with torch.autocast(ids.device.type, self.dtype, enabled=self.dtype != torch.float32):
            made = self.backbone(input_ids=ids, attention_mask=mask, output_hidden_states=True)
        last = made.last_hidden_state
        return self.tower.vectors(last, mask), last, made.hidden_states[self.skip]

    def masked_losses(self, last: Tensor, early: Tensor, mask: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Sums of the cross entropies of masked tokens: `late_mlm` of the last layer, `head_mlm` of the head.

        Args:
            last, early: (n, L, d); mask: (n, L) of 0 and 1; labels: (n, L) true ids, negative where not masked.
        """
        asked = labels >= 0
        targets = labels[asked]
        losses = {"late_mlm": self._predict(last[asked], targets)}
        if len(self.layers):
            seen = FAR * (1.0 - mask[:, None, None, :].float())  # (n, 1, 1, L)
            mixed = torch.cat([last[:, :1], early[:, 1:]], dim=1)
            losses["head_mlm"] = self._predict(self._through(mixed, seen)[asked], targets)
        return losses

    def reconstruction(self, vectors: Tensor, features: dict[str, Tensor]) -> Tensor:
        """Sum of the cross entropies of all tokens but the first, each from the vector and the tokens before it.

        Args:
            vectors: (n, d) of the texts; they stand in the place of the first token.
            features: `input_ids`, `attention_mask` (n, L) of the texts to be said again.
        """
        asked = features["attention_mask"][:, 1:].bool()
        states = self.decoded(vectors, features)[:, :-1]
        return self._predict(states[asked], features["input_ids"][:, 1:][asked])

    def told(self, features: dict[str, Tensor], targets: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Vectors (n, D) of texts by T5, and the sum of the cross entropies of what its decoder is to tell.

        One pass gives both: the decoder's first position, the vector, sees none of the tokens that are told.

        Args:
            features: `input_ids`, `attention_mask` (n, L) of the texts.
            targets: the same (n, L') of what is to be told.
        """
        ids, mask, wanted = features["input_ids"], features["attention_mask"], targets["input_ids"]
        start = wanted.new_full((len(wanted), 1), self.backbone.config.decoder_start_token_id)
        given = torch.cat([start, wanted[:, :-1]], 1)
        with torch.autocast(ids.device.type, self.dtype, enabled=self.dtype != torch.float32):
            made = self.backbone(input_ids=ids, attention_mask=mask, decoder_input_ids=given, use_cache=False)
            states = made.last_hidden_state
            asked = targets["attention_mask"].bool()
            logits = states[asked] * states.shape[-1] ** -0.5 @ self._table.T  # T5 scales where embeddings are shared
        loss = nn.functional.cross_entropy(logits.float(), wanted[asked], reduction="sum")
        return self.tower.vectors(states[:, :1], mask), loss

    def decoded(self, vectors: Tensor, features: dict[str, Tensor]) -> Tensor:
        """The decoder's states, (n, L, d): position i knows the vector and tokens 1 to i."""
        ids, mask = features["input_ids"], features["attention_mask"]
        with torch.autocast(ids.device.type, self.dtype, enabled=self.dtype != torch.float32):
            tokens = self.backbone.embeddings(input_ids=ids)
        length = ids.shape[1]
        before = torch.ones(length, length, device=ids.device).tril()  # (to, from)
        seen = FAR * (1.0 - before * mask[:, None, None, :].float())  # (n, 1, L, L)
        return self._through(torch.cat([vectors[:, None].to(tokens.dtype), tokens[:, 1:]], dim=1), seen)

    def _through(self, hidden: Tensor, seen: Tensor) -> Tensor:
        """The extra layers. hidden (n, L, d); seen broadcasts to (n, heads, L, L), added to attention -> (n, L, d)."""
        with torch.autocast(hidden.device.type, self.dtype, enabled=self.dtype != torch.float32):
            for layer in self.layers:
                hidden = layer(hidden, seen.expand(-1, -1, hidden.shape[1], -1).to(hidden.dtype))
        return hidden

    def _predict(self, states: Tensor, targets: Tensor) -> Tensor:
        assert self.prediction is not None, "the objective asked for a prediction layer"
        with torch.autocast(states.device.type, self.dtype, enabled=self.dtype != torch.float32):
            return self.prediction.loss(states, targets, self._table)

    def save(self, folder: Path) -> None:
        """Write the bi-encoder as a model folder, and what pretraining added into a subfolder of it."""
        self.encoder.save(folder)
        save_additions(self, folder)


def check_family(where: object, config: Any, extra_layers: bool) -> None:
    """Extra layers are for BERT and its kin, predictions for any encoder that is not a part of an encoder-decoder.

    Raises:
        ModelError: another family.
    """
    if config.model_type in T5_FAMILY or extra_layers and config.model_type not in FAMILIES:
        raise ModelError(
            where,
            f"is of family {config.model_type}; predicting tokens is for {', '.join(FAMILIES)}",
            "start from one of these, or use ict or simcse",
        )


def layers_of(backbone: Any) -> nn.ModuleList:
    """The layers of a BERT-like transformers module."""
    return backbone.transformer.layer if backbone.config.model_type == "distilbert" else backbone.encoder.layer


def _new_layers(backbone: Any, count: int) -> list[nn.Module]:
    return [type(layers_of(backbone)[0])(backbone.config) for _ in range(count)]
