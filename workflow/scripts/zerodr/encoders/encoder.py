"""A bi-encoder: texts -> token ids -> vectors. `load_encoder(folder)` reads any model folder of the bench.

On the CPU a `BertModel` runs in the packed forward pass; everything else, and every model on a GPU, runs as the
transformers module. Which one ran is `Encoder.backend`, and goes into lineage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from zerodr.encoders.contract import EncoderContract, read_contract, read_json
from zerodr.encoders.packed import PackedBert, why_not
from zerodr.encoders.pooling import POOLINGS, unit_length
from zerodr.errors import ModelError

log = logging.getLogger("zerodr")
Precision = Literal["fp32", "bf16"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
TOKENIZED_AT_ONCE = 512
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"Identity": lambda x: x, "Tanh": torch.tanh}


@dataclass
class Tokens:
    """Token ids of many texts, compact: ids (total,) int32, offsets (texts + 1,) int64."""

    ids: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text, (texts,) int64."""
        return np.diff(self.offsets)

    def __getitem__(self, row: int) -> np.ndarray:
        return self.ids[self.offsets[row] : self.offsets[row + 1]]


@dataclass
class Encoder:
    """A loaded model.

    Attributes:
        contract: pooling, prefixes, lengths and so on.
        tokenizer: of transformers.
        hidden: ids (B, L), mask (B, L) -> last hidden states (B, L, d).
        projections: dense layers after the pooling, with their activations, in float32.
        backend: `packed` or `transformers`, with the reason where the packed pass was not taken.
    """

    contract: EncoderContract
    tokenizer: Any
    hidden: Callable[[Tensor, Tensor], Tensor]
    projections: list[tuple[Tensor, Tensor | None, Callable[[Tensor], Tensor]]]
    precision: Precision
    device: str
    backend: str

    @property
    def dimension(self) -> int:
        """Components of a vector."""
        return self.contract.dimension

    def tokenize(self, texts: Sequence[str], prefix: str = "", max_tokens: int | None = None) -> Tokens:
        """Ids with special tokens, cut at the smaller of `max_tokens` and the contract's."""
        limit = min(max_tokens or self.contract.max_tokens, self.contract.max_tokens)
        rows = [row for part in self._tokenized(texts, prefix, limit) for row in part]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        return Tokens(np.concatenate(rows) if rows else np.zeros(0, np.int32), offsets)

    def _tokenized(self, texts: Sequence[str], prefix: str, limit: int) -> Iterator[list[np.ndarray]]:
        for start in range(0, len(texts), TOKENIZED_AT_ONCE):
            part = [prefix + text for text in texts[start : start + TOKENIZED_AT_ONCE]]
            part = [text.lower() for text in part] if self.contract.lowercase else part
            made = self.tokenizer(part, truncation=True, max_length=limit, padding=False, return_attention_mask=False,
                                  return_token_type_ids=False, verbose=False)  # fmt: skip
            yield [np.asarray(ids, np.int32) for ids in made["input_ids"]]

    def encode_batch(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Vectors of one batch of token ids. rows: B arrays of ids -> (B, dimension) float32."""
        ids, mask = pad(rows, self.tokenizer.pad_token_id or 0)
        with torch.inference_mode():
            ids, mask = ids.to(self.device), mask.to(self.device)
            vectors = POOLINGS[self.contract.pooling](self.hidden(ids, mask), mask)
            for weight, bias, activation in self.projections:
                vectors = activation(torch.nn.functional.linear(vectors, weight, bias))
            if self.contract.normalize:
                vectors = unit_length(vectors)
            return vectors.float().cpu().numpy()


def pad(rows: Sequence[np.ndarray], padding: int) -> tuple[Tensor, Tensor]:
    """Right-padded ids (B, L) int64 and mask (B, L) of 0 and 1; L is the longest row's length, at least 1."""
    length = max(1, max(len(row) for row in rows))
    ids, mask = np.full((len(rows), length), padding, np.int64), np.zeros((len(rows), length), np.int64)
    for line, row in enumerate(rows):
        ids[line, : len(row)], mask[line, : len(row)] = row, 1
    return torch.from_numpy(ids), torch.from_numpy(mask)


def load_encoder(
    folder: Path, precision: Precision = "fp32", device: str | None = None, packed: bool = True
) -> Encoder:
    """The encoder of a model folder.

    Args:
        folder: holds zerodr.json and what transformers needs.
        precision: arithmetic of the transformer; pooling and projections are float32.
        device: `cpu`, `cuda`, ...; None takes the GPU when there is one.
        packed: on the CPU, take the packed forward pass where it can be had.

    Raises:
        ModelError: no contract, no tokenizer, weights missing, or another dimension than promised.
    """
    contract = read_contract(folder)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer, model = load_tokenizer(folder), load_module(folder)
    projections = [_projection(folder / name, device) for name in contract.projections]
    size = projections[-1][0].shape[0] if projections else model.config.hidden_size
    if size != contract.dimension:
        raise ModelError(folder, f"makes vectors of {size} components, zerodr.json promises {contract.dimension}",
                         "import the model again")  # fmt: skip
    forward, backend = _forward(model, precision, device, packed)
    return Encoder(contract, tokenizer, forward, projections, precision, device, backend)


def _forward(
    model: Any, precision: Precision, device: str, packed: bool
) -> tuple[Callable[[Tensor, Tensor], Tensor], str]:
    dtype = DTYPES[precision]
    reason = (
        "switched off"
        if not packed
        else why_not(model, dtype)
        if device == "cpu"
        else f"it is for the CPU, not {device}"
    )
    if reason is None:
        return PackedBert(model, dtype), "packed"
    log.info("forward pass of transformers, not the packed one: %s", reason)
    module = model.to(device=device, dtype=dtype)
    return lambda ids, mask: module(input_ids=ids, attention_mask=mask).last_hidden_state, f"transformers ({reason})"


def load_tokenizer(folder: Path) -> Any:
    """The folder's tokenizer.

    Raises:
        ModelError: transformers can't load it.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            folder, f"its tokenizer can't be loaded ({_short(error)})", "copy a whole tokenizer there"
        ) from None


def load_module(folder: Path) -> Any:
    """The folder's transformer in float32, in evaluation mode; of an encoder-decoder, the encoder.

    Raises:
        ModelError: unknown architecture, or weights that are missing or of another shape.
    """
    from transformers import AutoModel
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        model, report = AutoModel.from_pretrained(str(folder), dtype=torch.float32, local_files_only=True,
                                                  trust_remote_code=False, use_safetensors=True,
                                                  output_loading_info=True)  # fmt: skip
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(
            folder, f"transformers can't load it ({_short(error)})", "choose a model that it knows"
        ) from None
    missing = sorted(key for key in report["missing_keys"] if "pooler" not in key)
    if missing:
        raise ModelError(folder, f"lacks {len(missing)} weights of {type(model).__name__}, the first is {missing[0]}",
                         "choose a whole model")  # fmt: skip
    model = model.get_encoder() if model.config.is_encoder_decoder else model
    return model.eval()


def _projection(folder: Path, device: str) -> tuple[Tensor, Tensor | None, Callable[[Tensor], Tensor]]:
    from safetensors.torch import load_file

    config, path = read_json(folder / "config.json"), folder / "model.safetensors"
    name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rsplit(".", 1)[-1]
    if name not in ACTIVATIONS or not path.exists():
        what = f"activation {name}" if name not in ACTIVATIONS else "no model.safetensors"
        raise ModelError(folder, f"a dense layer with {what} is not supported", f"known: {', '.join(ACTIVATIONS)}")
    weights = {key: value.float().to(device) for key, value in load_file(path).items()}
    return weights["linear.weight"], weights.get("linear.bias"), ACTIVATIONS[name]


def _short(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
