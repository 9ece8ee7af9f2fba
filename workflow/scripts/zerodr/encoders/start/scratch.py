"""Create random weights of a small architecture, from a seed."""

from typing import Any

import torch

from zerodr.config.training import Architecture
from zerodr.errors import ModelError

POSITIONS = 512
WIDENING = 4  # inner width of a feed-forward layer, as a multiple of the hidden width


def random_transformer(architecture: Architecture, tokenizer: Any, pooling: str, seed: int) -> Any:
    """Create a transformers module in float32, in evaluation mode; the caller's random state does not change.

    Args:
        architecture: family and sizes.
        tokenizer: its size, padding and ends decide rows and special ids.
        pooling: `decoder_first` builds T5 with its decoder, other poolings its encoder only.
        seed: equal seeds give equal weights.

    Raises:
        ModelError: the tokenizer has no token to pad with or to end a text.
    """
    from transformers import BertModel, DistilBertModel, RobertaModel, T5EncoderModel, T5Model

    t5 = T5Model if pooling == "decoder_first" else T5EncoderModel
    classes = {"bert": BertModel, "roberta": RobertaModel, "distilbert": DistilBertModel, "t5": t5}
    config = _config(architecture, tokenizer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return classes[architecture.family](config).eval()


def _config(a: Architecture, tokenizer: Any) -> Any:
    from transformers import BertConfig, DistilBertConfig, RobertaConfig, T5Config

    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    pad = tokenizer.pad_token_id
    if pad is None or end is None:
        problem, step = "has no token to pad with, or none that ends a text", "or tokenizer: train"
        raise ModelError(tokenizer.name_or_path or "tokenizer", problem, f"name another tokenizer, {step}")
    rows, inner, positions = 1 + max(tokenizer.get_vocab().values()), WIDENING * a.hidden, POSITIONS
    common: dict[str, Any] = {"vocab_size": rows, "pad_token_id": pad, "eos_token_id": end}
    if a.family == "t5":
        common |= {"decoder_start_token_id": pad, "num_layers": a.layers, "num_decoder_layers": a.layers}
        return T5Config(**common, d_model=a.hidden, d_kv=a.hidden // a.heads, d_ff=inner, num_heads=a.heads)
    if a.family == "distilbert":
        common |= {"max_position_embeddings": positions, "n_layers": a.layers, "n_heads": a.heads}
        return DistilBertConfig(**common, dim=a.hidden, hidden_dim=inner)
    common |= {"hidden_size": a.hidden, "intermediate_size": inner}
    common |= {"num_hidden_layers": a.layers, "num_attention_heads": a.heads}
    if a.family == "roberta":  # positions are counted from the padding id on
        positions += 1 + pad
        return RobertaConfig(**common, max_position_embeddings=positions, type_vocab_size=1, layer_norm_eps=1e-5)
    return BertConfig(**common, max_position_embeddings=positions)
