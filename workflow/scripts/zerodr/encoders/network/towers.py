"""Build one tower of a bi-encoder, a trainable module: token ids -> transformer -> pooling -> projections -> vector."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zerodr.encoders.folder.contract import EncoderContract, Precision
from zerodr.encoders.network.heads import POOLINGS, Projection, load_projection, unit_length
from zerodr.encoders.network.loading import T5_FAMILY, load_config, load_network, short
from zerodr.encoders.network.tokenizing import added_special
from zerodr.errors import ModelError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
PADDING_ROWS = 512  # embedding tables are padded to round sizes; a larger gap means another tokenizer
HALF_STEP = "set precision: bf16 or fp32"


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
        if isinstance(pooler := getattr(transformer, "pooler", None), nn.Module):
            pooler.requires_grad_(False)  # no pooling of ours reads BERT's; it stays in the files for other tools
        self.projections = nn.ModuleList(projections.values())
        self.pooling, self.normalize = contract.pooling, contract.normalize

    def hidden(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Compute last hidden states. ids, mask (B, L) -> (B, L, d); of a decoder (B, 1, d), after its final norm."""
        return hidden_states(self.transformer, self.pooling, ids, mask)

    def forward(self, ids: Tensor, mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Map ids, mask (B, L) -> vectors (B, D) float32. With another `dtype` the transformer runs under autocast."""
        return self.with_states(ids, mask, dtype)[0]

    def with_states(self, ids: Tensor, mask: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """Encode as `forward`; return the last hidden states, too."""
        with torch.autocast(ids.device.type, dtype, enabled=dtype != torch.float32):
            hidden = self.hidden(ids, mask)
        return self.vectors(hidden, mask), hidden

    def vectors(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Pool and project last hidden states (B, L, d), mask (B, L) -> vectors (B, D) float32."""
        with torch.autocast(hidden.device.type, enabled=False):
            vectors = POOLINGS[self.pooling](hidden, mask)
            for project in self.projections:
                vectors = project(vectors)
            return unit_length(vectors) if self.normalize else vectors


def hidden_states(transformer: Any, pooling: str, ids: Tensor, mask: Tensor) -> Tensor:
    """Run a transformers module. ids, mask (B, L) -> last hidden states (B, L, d), or (B, 1, d) for `decoder_first`."""
    mask = attended(transformer, mask)
    if pooling != "decoder_first":
        return transformer(input_ids=ids, attention_mask=mask).last_hidden_state
    start = ids.new_full((ids.shape[0], 1), transformer.config.decoder_start_token_id)  # MoMA eq. 2
    return transformer(input_ids=ids, attention_mask=mask, decoder_input_ids=start, use_cache=False).last_hidden_state


def attended(transformer: Any, mask: Tensor) -> Tensor:
    """Return the mask (B, L) in the form that a transformers module takes without reading its numbers.

    On a GPU, with torch's fused attention, it asks whether anything is masked, and so waits for the device in each
    pass; not where the mask is (B, 1, 1, L) bool already.
    """
    if mask.device.type == "cpu" or transformer.config._attn_implementation != "sdpa":
        return mask
    return mask[:, None, None, :].bool()


def load_tower(folder: Path, contract: EncoderContract) -> Tower:
    """Load the tower of a model folder whose contract is `contract`, in evaluation mode; its unused pooler is frozen.

    Raises:
        ModelError: weights or projections are missing, of another shape, or of another dimension than the contract's.
    """
    transformer = load_transformer(folder, contract.pooling)
    projections = load_projections(folder, contract, transformer.config.hidden_size)
    return Tower(transformer, contract, projections).eval()


def load_projections(folder: Path, contract: EncoderContract, width: int) -> dict[str, Any]:
    """Load the modules after the pooling, by name.

    Args:
        folder: of the model.
        contract: the model's.
        width: components of a hidden state.

    Raises:
        ModelError: one is missing, or the vectors have another dimension than the contract's.
    """
    projections = {name: load_projection(folder / name) for name in contract.projections}
    size = projections[contract.projections[-1]].size if projections else width
    if size != contract.dimension:
        problem = f"makes vectors of {size} components, zerodr.json promises {contract.dimension}"
        raise ModelError(folder, problem, "import the model again")
    return projections


def load_transformer(folder: Path, pooling: str, layers: int | None = None) -> Any:
    """Load the folder's transformer in float32, in evaluation mode. Of an encoder-decoder: both halves, or the encoder.

    Args:
        folder: files of transformers, with weights as safetensors.
        pooling: of the contract; `decoder_first` needs both halves of an encoder-decoder.
        layers: number of first layers to use (of the encoder and of the decoder). None: all.

    Raises:
        ModelError: unknown architecture, weights that are missing or of another shape, too few layers, no decoder.
    """
    from transformers import AutoModel, AutoModelForTextEncoding

    with_decoder = pooling == "decoder_first"
    try:
        config = load_config(folder, layers)
        if config.model_type == "dpr":
            problem = "is one tower of a DPR pair in transformers' own classes"
            step = "import both: kind: encoder with model (queries) and document_model (documents)"
            raise ModelError(folder, problem, step)
        if with_decoder and config.model_type not in T5_FAMILY:
            problem = f"pooling decoder_first needs a T5 encoder-decoder, found {config.model_type}"
            raise ModelError(folder, problem, "set pooling: cls or mean")
        encoder_only = config.model_type in T5_FAMILY and not with_decoder
        if with_decoder and getattr(config, "decoder_start_token_id", None) is None:
            config.decoder_start_token_id = config.pad_token_id  # T5 starts with its padding token
        model, missing = load_network(AutoModelForTextEncoding if encoder_only else AutoModel, folder, config)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        problem = f"transformers can't load it ({short(error)})"
        raise ModelError(folder, problem, "choose a model that it knows") from None
    needed = [key for key in missing if "pooler" not in key]
    if needed:
        problem = f"lacks {len(needed)} weights of {type(model).__name__}, the first is {needed[0]}"
        raise ModelError(folder, problem, "choose a complete model")
    if missing:
        for weight in model.pooler.parameters():  # otherwise random numbers, others at each load
            weight.data.zero_()
    usable = encoder_only or with_decoder or not model.config.is_encoder_decoder
    return (model if usable else model.get_encoder()).eval()


def check_precision(where: Path | str, model_type: str, precision: Precision, device: str | None) -> None:
    """Refuse fp16 where it does not work. A `device` of None is unknown yet.

    Raises:
        ModelError: with the reason.
    """
    if precision != "fp16":
        return
    if model_type in T5_FAMILY:
        problem = "fp16 is refused for T5: its activations pass fp16's largest number (65504), giving infinity and NaN"
        raise ModelError(where, problem, HALF_STEP)
    if device is not None and not device.startswith("cuda"):
        raise ModelError(where, f"fp16 needs a GPU, the device is {device}", HALF_STEP)


def check_vocabulary(where: Path | str, tokenizer: Any, config: Any) -> None:
    """Check that tokenizer and embedding table belong together.

    Raises:
        ModelError: a token without a row (special ones excepted, which no ordinary text holds), many more rows than
            tokens, or no token to pad with.
    """
    rows, special = config.vocab_size, added_special(tokenizer)
    tokens = 1 + max((number for token, number in tokenizer.get_vocab().items() if token not in special), default=-1)
    if tokens > rows or rows - tokens > PADDING_ROWS:
        counts = f"the tokenizer knows {tokens} tokens, the model's embedding table has {rows} rows"
        raise ModelError(where, f"tokenizer and model do not belong together: {counts}", "use the model's tokenizer")
    if tokenizer.pad_token_id is None:
        raise ModelError(where, "its tokenizer has no padding token", "use a tokenizer with one")
