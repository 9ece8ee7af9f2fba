"""One tower of a bi-encoder: token ids -> transformer -> pooling -> projections -> vector, as a trainable module."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from zerodr.encoders.folder.contract import EncoderContract
from zerodr.encoders.network.heads import Projection, load_projection
from zerodr.encoders.network.pooling import POOLINGS, unit_length
from zerodr.errors import ModelError

Precision = Literal["fp32", "bf16", "fp16"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
T5_FAMILY = ("t5", "mt5", "umt5")
PADDING_ROWS = 512  # embedding tables are padded to round sizes; a larger gap means that another tokenizer was used


class Tower(nn.Module):
    """Transformer, pooling, projections, and scaling to length 1 where the contract says so.

    Args:
        transformer: float32; for `decoder_first` an encoder-decoder.
        contract: pooling and normalisation.
        projections: subfolder -> module, in order.
    """

    def __init__(self, transformer: Any, contract: EncoderContract, projections: dict[str, Projection]) -> None:
        super().__init__()
        self.transformer = transformer
        _freeze_pooler(transformer)
        self.projections = nn.ModuleList(projections.values())
        self.pooling, self.normalize = contract.pooling, contract.normalize

    def hidden(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Last hidden states. ids, mask (B, L) -> (B, L, d); of a decoder (B, 1, d), after its final norm."""
        return hidden_states(self.transformer, self.pooling, ids, mask)

    def forward(self, ids: Tensor, mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """ids, mask (B, L) -> vectors (B, D) float32. With another `dtype` the transformer runs under autocast."""
        return self.with_states(ids, mask, dtype)[0]

    def with_states(self, ids: Tensor, mask: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """As `forward`, with the last hidden states that the vectors were made from."""
        with torch.autocast(ids.device.type, dtype, enabled=dtype != torch.float32):
            hidden = self.hidden(ids, mask)
        return self.vectors(hidden, mask), hidden

    def vectors(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Last hidden states (B, L, d), mask (B, L) -> vectors (B, D) float32."""
        with torch.autocast(hidden.device.type, enabled=False):
            vectors = POOLINGS[self.pooling](hidden, mask)
            for project in self.projections:
                vectors = project(vectors)
            return unit_length(vectors) if self.normalize else vectors


def hidden_states(transformer: Any, pooling: str, ids: Tensor, mask: Tensor) -> Tensor:
    """Last hidden states of a transformers module. ids, mask (B, L) -> (B, L, d), or (B, 1, d) for `decoder_first`."""
    if pooling != "decoder_first":
        return transformer(input_ids=ids, attention_mask=mask).last_hidden_state
    start = ids.new_full((ids.shape[0], 1), transformer.config.decoder_start_token_id)  # specs/moma 2
    return transformer(input_ids=ids, attention_mask=mask, decoder_input_ids=start, use_cache=False).last_hidden_state


def load_tower(folder: Path, contract: EncoderContract) -> Tower:
    """The tower of a model folder whose contract is `contract`, in evaluation mode; its unused pooler is frozen.

    Raises:
        ModelError: weights or projections are missing, of another shape, or of another dimension than promised.
    """
    transformer = load_transformer(folder, contract.pooling)
    projections = {name: load_projection(folder / name) for name in contract.projections}
    size = projections[contract.projections[-1]].size if projections else hidden_size(transformer.config)
    if size != contract.dimension:
        raise ModelError(
            folder,
            f"makes vectors of {size} components, zerodr.json promises {contract.dimension}",
            "import the model again",
        )
    return Tower(transformer, contract, projections).eval()


def hidden_size(config: Any) -> int:
    """Components of a token's vector."""
    return config.hidden_size


def load_transformer(folder: Path, pooling: str, layers: int | None = None) -> Any:
    """The folder's transformer in float32, in evaluation mode. Of an encoder-decoder: whole, or the encoder.

    Args:
        folder: what transformers loads, with weights as safetensors.
        pooling: of the contract; `decoder_first` takes an encoder-decoder whole.
        layers: keep the first so many (of the encoder and of the decoder). None: all.

    Raises:
        ModelError: unknown architecture, weights that are missing or of another shape, too few layers, no decoder.
    """
    from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding

    quiet()
    encoder_only = False
    try:
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        _check_decoder(folder, config, pooling)
        encoder_only = config.model_type in T5_FAMILY and pooling != "decoder_first"
        cut_layers(folder, config, layers)
        config.output_hidden_states = False
        if pooling == "decoder_first" and getattr(config, "decoder_start_token_id", None) is None:
            config.decoder_start_token_id = config.pad_token_id  # T5 starts with its padding token
        factory = AutoModelForTextEncoding if encoder_only else AutoModel
        model, report = factory.from_pretrained(
            str(folder),
            config=config,
            dtype=torch.float32,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(
            folder, f"transformers can't load it ({short(error)})", "choose a model that it knows"
        ) from None
    missing = sorted(key for key in report["missing_keys"] if "pooler" not in key)
    if missing:
        raise ModelError(
            folder,
            f"lacks {len(missing)} weights of {type(model).__name__}, the first is {missing[0]}",
            "choose a whole model",
        )
    if any("pooler" in key for key in report["missing_keys"]):
        for weight in model.pooler.parameters():  # fresh random numbers otherwise, others at each load
            weight.data.zero_()
    whole = encoder_only or pooling == "decoder_first" or not model.config.is_encoder_decoder
    return (model if whole else model.get_encoder()).eval()


def _check_decoder(folder: Path, config: Any, pooling: str) -> None:
    if pooling == "decoder_first" and config.model_type not in T5_FAMILY:
        raise ModelError(
            folder,
            f"pooling decoder_first needs a T5 encoder-decoder, found {config.model_type}",
            "set pooling: cls or mean",
        )


def cut_layers(folder: Path | str, config: Any, layers: int | None) -> None:
    """Change a configuration of transformers so that the first `layers` layers are built.

    Raises:
        ModelError: the checkpoint has fewer.
    """
    if layers is None:
        return
    counts = [name for name in ("num_layers", "num_decoder_layers") if config.model_type in T5_FAMILY]
    for name in counts or ["num_hidden_layers"]:
        have = getattr(config, name, None)
        if have is None or have < layers:
            raise ModelError(
                folder,
                f"layers: {layers} asked, the checkpoint has {have or 'no count of layers'}",
                f"set layers to at most {have}" if have else "leave layers out",
            )
        setattr(config, name, layers)
    if getattr(config, "layer_types", None):
        config.layer_types = list(config.layer_types)[:layers]


def _freeze_pooler(transformer: Any) -> None:
    """Take BERT's pooler, which no pooling of ours reads, out of training; it stays in the files for other tools."""
    pooler = getattr(transformer, "pooler", None)
    if isinstance(pooler, nn.Module):
        pooler.requires_grad_(False)


def check_precision(where: Path | str, model_type: str, precision: Precision, device: str | None) -> None:
    """Refuse fp16 where it does not work. A `device` of None is not known yet.

    Raises:
        ModelError: with the reason.
    """
    if precision != "fp16":
        return
    if model_type in T5_FAMILY:
        raise ModelError(
            where,
            "fp16 is refused for T5: its activations pass fp16's largest number (65504), giving infinity and NaN",
            "set precision: bf16 or fp32",
        )
    if device is not None and not device.startswith("cuda"):
        raise ModelError(where, f"fp16 needs a GPU, the device is {device}", "set precision: bf16 or fp32")


def check_vocabulary(where: Path | str, tokenizer: Any, config: Any) -> None:
    """Tokenizer and embedding table belong together.

    Raises:
        ModelError: a token without a row, many more rows than tokens, or no token to pad with.
    """
    rows, tokens = config.vocab_size, 1 + max(tokenizer.get_vocab().values(), default=-1)
    if tokens > rows or rows - tokens > PADDING_ROWS:
        raise ModelError(
            where,
            f"tokenizer and model do not belong together: the tokenizer knows {tokens} tokens, the "
            f"model's embedding table has {rows} rows",
            "use the model's own tokenizer",
        )
    if tokenizer.pad_token_id is None:
        raise ModelError(where, "its tokenizer has no padding token", "use a tokenizer with one")


def short(error: Exception) -> str:
    """The first line of an error of another library."""
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


def quiet() -> None:
    """Keep transformers' own lines and bars out of the log."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
