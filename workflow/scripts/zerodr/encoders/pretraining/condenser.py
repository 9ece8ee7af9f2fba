"""Extend a bi-encoder for pretraining: Condenser's head, the prediction of masked tokens, or a small decoder.

Condenser's head reads the last layer's [CLS] and an early layer's tokens, [h^L[0]; h^skip[1:]]
(Gao and Callan 2021; COCO-DR section 4.1 pretrains with its loss).
So masked tokens can be predicted well only if [CLS] summarizes the text. TSDAE's decoder reads the text's vector and
the tokens before each one. Both are layers of the backbone's class and configuration.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from zerodr.encoders.network.loading import families_with, family_of
from zerodr.encoders.network.towers import DTYPES, Tower, attended
from zerodr.encoders.network.trainable import SHARED, BiEncoder
from zerodr.encoders.pretraining.additions import save_additions
from zerodr.encoders.pretraining.prediction import Prediction, cross_entropies, fresh
from zerodr.errors import ModelError

Kind = Literal["condenser", "decoder", "none"]
FAR = -1e9  # added to the attention of hidden positions


class HeadedEncoder(nn.Module):
    """A tied bi-encoder, extra layers and a prediction layer.

    Args:
        encoder: its backbone is BERT-like.
        kind: of the extra layers: Condenser's head, or TSDAE's decoder.
        layers: number of extra layers; 0 for none.
        predicts: with a prediction layer.
        skip: layer whose tokens Condenser's head reads (0: embeddings). None: the middle one.
        backbone_dropout: False keeps the backbone in evaluation mode while training, as COCO-DR's code does.
        seed: of fresh weights.

    Raises:
        ModelError: two towers, a backbone of another family, or too few layers.
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
            step = "set towers: tied, and split them in a later stage's init"
            raise ModelError(source, "has two towers; pretraining is for one network", step)
        self.encoder, self.backbone_dropout = encoder, backbone_dropout
        if layers or predicts:
            check_family(source, self.backbone.config, bool(layers))
        depth = len(layers_of(self.backbone)) if kind == "condenser" else 0
        self.skip = depth // 2 if skip is None else skip
        if kind == "condenser" and not self.skip < depth:
            raise ModelError(source, f"has {depth} layers, skip_layer {skip} is not below its last", "lower skip_layer")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            config = self.backbone.config
            self.layers = nn.ModuleList(type(layers_of(self.backbone)[0])(config) for _ in range(layers))
            self.prediction = Prediction(config, self._table.shape) if predicts else None
            for module in (self.layers, self.prediction):
                if module is not None:
                    fresh(module, getattr(config, "initializer_range", 0.02))

    @property
    def tower(self) -> Tower:
        """Return the one network."""
        return self.encoder.towers[SHARED]  # type: ignore[return-value]

    @property
    def backbone(self) -> Any:
        """Return the transformers module."""
        return self.tower.transformer

    @property
    def _table(self) -> Tensor:
        """Return the embeddings of the vocabulary, (V, width)."""
        return self.backbone.get_input_embeddings().weight

    @property
    def dtype(self) -> torch.dtype:
        """Return the arithmetic of the transformer and of extra layers."""
        return DTYPES[self.encoder.precision]

    def _autocast(self, tensor: Tensor) -> torch.autocast:
        return torch.autocast(tensor.device.type, self.dtype, enabled=self.dtype != torch.float32)

    def train(self, mode: bool = True) -> HeadedEncoder:
        """Set training mode; the backbone stays in evaluation mode without `backbone_dropout`."""
        super().train(mode)
        if not self.backbone_dropout:
            self.encoder.eval()
        return self

    def encode(self, features: dict[str, Tensor], side: str = "document") -> Tensor:
        """Encode one padded batch, (n, D) float32."""
        return self.encoder.encode(features, side)  # type: ignore[arg-type]

    def states(self, features: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Compute vectors (n, D) float32, last hidden states (n, L, d), and those of layer `skip` (n, L, d)."""
        ids, mask = features["input_ids"], features["attention_mask"]
        with self._autocast(ids):
            output = self.backbone(
                input_ids=ids, attention_mask=attended(self.backbone, mask), output_hidden_states=True
            )
        last = output.last_hidden_state
        return self.tower.vectors(last, mask), last, output.hidden_states[self.skip]

    def masked_losses(
        self, last: Tensor, early: Tensor, mask: Tensor, positions: Tensor, targets: Tensor
    ) -> dict[str, Tensor]:
        """Sum the cross entropies of masked tokens: `late_mlm` of the last layer, `head_mlm` of the head.

        Args:
            last, early: (n, L, d); mask: (n, L) of 0 and 1.
            positions, targets: (m,) of `masked_tokens`.
        """
        losses = {"late_mlm": self._predict(last.flatten(0, 1)[positions], targets)}
        if len(self.layers):
            bias = FAR * (1.0 - mask[:, None, None, :].float())  # (n, 1, 1, L)
            mixed = torch.cat([last[:, :1], early[:, 1:]], dim=1)
            losses["head_mlm"] = self._predict(self._run_layers(mixed, bias).flatten(0, 1)[positions], targets)
        return losses

    def reconstruction(
        self, vectors: Tensor, features: dict[str, Tensor], positions: Tensor, targets: Tensor
    ) -> Tensor:
        """Sum the cross entropies of all tokens but the first, each from the vector and the tokens before it.

        Args:
            vectors: (n, d) of the texts; they replace the first token.
            features: `input_ids`, `attention_mask` (n, L) of the texts to reconstruct.
            positions, targets: (m,) of `real_tokens` from the second token on.
        """
        states = self.decode(vectors, features).flatten(0, 1)
        return self._predict(states[positions - 1], targets)

    def generation(
        self, features: dict[str, Tensor], wanted: dict[str, Tensor], positions: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute vectors (n, D) of texts by T5, and the sum of the cross entropies of its decoder's targets.

        One pass gives both: the decoder's first position, the vector, sees no target token.

        Args:
            features: `input_ids`, `attention_mask` (n, L) of the texts.
            wanted: the same (n, L') of what the decoder is to write.
            positions, targets: (m,) of `real_tokens` of `wanted`.
        """
        ids, mask, labels = features["input_ids"], features["attention_mask"], wanted["input_ids"]
        start = labels.new_full((len(labels), 1), self.backbone.config.decoder_start_token_id)
        inputs = torch.cat([start, labels[:, :-1]], 1)
        with self._autocast(ids):
            output = self.backbone(input_ids=ids, attention_mask=mask, decoder_input_ids=inputs, use_cache=False)
            states = output.last_hidden_state
            read = states.flatten(0, 1)[positions]
            logits = read * states.shape[-1] ** -0.5 @ self._table.T  # T5 scales where embeddings are shared
        return self.tower.vectors(states[:, :1], mask), cross_entropies(logits, targets)

    def decode(self, vectors: Tensor, features: dict[str, Tensor]) -> Tensor:
        """Compute the decoder's states, (n, L, d): position i reads the vector and tokens 1 to i."""
        ids, mask = features["input_ids"], features["attention_mask"]
        with self._autocast(ids):
            tokens = self.backbone.embeddings(input_ids=ids)
        length = ids.shape[1]
        visible = torch.ones(length, length, device=ids.device).tril()  # (to, from)
        bias = FAR * (1.0 - visible * mask[:, None, None, :].float())  # (n, 1, L, L)
        return self._run_layers(torch.cat([vectors[:, None].to(tokens.dtype), tokens[:, 1:]], dim=1), bias)

    def _run_layers(self, hidden: Tensor, bias: Tensor) -> Tensor:
        """Run the extra layers. hidden (n, L, d); bias of attention, broadcast to (n, heads, L, L) -> (n, L, d)."""
        with self._autocast(hidden):
            for layer in self.layers:
                hidden = layer(hidden, bias.expand(-1, -1, hidden.shape[1], -1).to(hidden.dtype))
        return hidden

    def _predict(self, states: Tensor, targets: Tensor) -> Tensor:
        assert self.prediction is not None, "the objective needs a prediction layer"
        with self._autocast(states):
            return self.prediction.loss(states, targets, self._table)

    def save(self, folder: Path) -> None:
        """Write the bi-encoder as a model folder, and the layers of pretraining into a subfolder of it."""
        self.encoder.save(folder)
        save_additions(self, folder)


def masked_tokens(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Find the masked tokens of a batch, on the host, so that nobody waits for their number.

    Args:
        labels: (n, L) true ids, negative where not masked.

    Returns:
        positions (m,) in the flattened batch, and true ids (m,).

    >>> positions, ids = masked_tokens(torch.tensor([[-1, 7, -1], [5, -1, -1]]))
    >>> positions.tolist(), ids.tolist()
    ([1, 3], [7, 5])
    """
    every = labels.flatten()
    positions = (every >= 0).nonzero()[:, 0]
    return positions, every[positions]


def real_tokens(features: dict[str, Tensor], first: int = 0) -> tuple[Tensor, Tensor]:
    """Find the tokens of texts from their token `first` on, without padding, on the host; as `masked_tokens`.

    >>> features = {"input_ids": torch.tensor([[101, 7, 102]]), "attention_mask": torch.tensor([[1, 1, 1]])}
    >>> [tensor.tolist() for tensor in real_tokens(features, first=1)]
    [[1, 2], [7, 102]]
    """
    ids, real = features["input_ids"], features["attention_mask"].bool()
    later = torch.arange(ids.shape[1]) >= first
    return masked_tokens(torch.where(real & later, ids, -1))


def check_family(where: object, config: Any, extra_layers: bool) -> None:
    """Check the family: BERT and its kin for extra layers, any encoder but T5's for predictions.

    Raises:
        ModelError: another family.
    """
    family = family_of(config.model_type)
    if family.decoder:
        problem = f"is of family {config.model_type}, whose encoder predicts no masked words"
        raise ModelError(where, problem, "start from an encoder such as BERT or ModernBERT, or use ict or simcse")
    if extra_layers and family.layers is None:
        known = ", ".join(families_with("layers"))
        problem = f"is of family {config.model_type}; a head of further layers is known for {known}"
        raise ModelError(where, problem, "start from one of these, or set head_layers: 0 for coco")


def layers_of(backbone: Any) -> nn.ModuleList:
    """Return the layers of a BERT-like transformers module."""
    path = family_of(backbone.config.model_type).layers
    assert path is not None, "check_family comes first"
    return backbone.get_submodule(path)
