"""Tiny networks of random weights and tokenizers that know letters alone, of the families of published models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from encoder_helpers import LETTERS, VOCABULARY

WIDTH = 32
SIZES: dict[str, Any] = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"intermediate_size": 64, "initializer_range": 0.3}


def network(name: str, rows: int, padding: int) -> Any:
    """Make a tiny network of a family, with random weights."""
    import torch
    import transformers as t

    torch.manual_seed(len(name) + rows)
    common = {"vocab_size": rows, "pad_token_id": padding}
    sizes = SIZES | common
    offset = {"max_position_embeddings": 200 + 1 + padding}
    decoder = {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 200}
    makers: dict[str, Callable[[], Any]] = {
        "bert": lambda: t.BertModel(t.BertConfig(**sizes, max_position_embeddings=200)),
        "mpnet": lambda: t.MPNetModel(t.MPNetConfig(**sizes, **offset, bos_token_id=0, eos_token_id=2)),
        "xlm-roberta": lambda: t.XLMRobertaModel(t.XLMRobertaConfig(**sizes, **offset, type_vocab_size=1)),
        "roberta": lambda: t.RobertaModel(t.RobertaConfig(**sizes, **offset, type_vocab_size=1)),
        "distilbert": lambda: t.DistilBertModel(
            t.DistilBertConfig(**common, dim=WIDTH, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=200)
        ),
        "modernbert": lambda: t.ModernBertModel(
            t.ModernBertConfig(**sizes, max_position_embeddings=200, local_attention=8, global_attn_every_n_layers=2)
        ),
        "nomic_bert": lambda: t.NomicBertModel(t.NomicBertConfig(**sizes, max_position_embeddings=64, head_dim=8)),
        "gte": lambda: t.GteModel(t.GteConfig(**sizes, max_position_embeddings=200)),
        "qwen3": lambda: t.Qwen3Model(t.Qwen3Config(**sizes | decoder | {"pad_token_id": None})),
        "gemma3_text": lambda: t.Gemma3TextModel(
            t.Gemma3TextConfig(**sizes, **decoder, use_bidirectional_attention=True, sliding_window=16)
        ),
        "t5": lambda: t.T5EncoderModel(t.T5Config(**common, d_model=WIDTH, d_kv=8, d_ff=64, num_layers=2, num_heads=4)),
    }
    return makers[name]()


SPECIALS: dict[str, dict[str, str]] = {
    "bert": dict(zip(("pad", "unk", "cls", "sep", "mask"), VOCABULARY[:5], strict=True)),
    "mpnet": {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "[UNK]", "mask": "<mask>"},
    "xlm-roberta": {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"},
    "modernbert": {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"},
    "qwen3": {"eos": "<|im_end|>", "pad": "<|endoftext|>"},
    "gemma3": {"pad": "<pad>", "eos": "<eos>", "bos": "<bos>", "unk": "<unk>", "mask": "<mask>"},
    "t5": {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"},
}
SPECIALS["roberta"] = SPECIALS["xlm-roberta"]
FRAMES = {"bert": ("[CLS]", "[SEP]"), "mpnet": ("<s>", "</s>"), "xlm-roberta": ("<s>", "</s>")}
FRAMES |= {"roberta": ("<s>", "</s>"), "modernbert": ("[CLS]", "[SEP]"), "qwen3": ("", "<|endoftext|>")}
FRAMES |= {"gemma3": ("<bos>", "<eos>"), "t5": ("", "</s>")}


def tokenizer(kind: str, longest: int) -> Any:
    """Make a tokenizer of a family that knows letters alone, with its special tokens around each text."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = list(dict.fromkeys(SPECIALS[kind].values()))
    pieces = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
    if kind in ("bert", "mpnet"):
        numbers = {token: row for row, token in enumerate([*special, *pieces])}
        raw = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
        raw.normalizer, raw.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    elif kind in ("modernbert", "qwen3", "roberta"):
        every = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
        raw = Tokenizer(models.BPE({token: row for row, token in enumerate(every)}, []))
        raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        marked = [(token, 0.0) for token in special] + [(token, -2.0) for token in ("▁", *LETTERS, "▁a", "th", "er")]
        raw = Tokenizer(models.Unigram(marked, unk_id=special.index("<unk>")))
        raw.normalizer, raw.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    first, last = FRAMES[kind]
    around = [(token, raw.token_to_id(token)) for token in (first, last) if token]
    raw.post_processor = processors.TemplateProcessing(single=f"{first} $A {last}".strip(), special_tokens=around)
    roles = {f"{role}_token": token for role, token in SPECIALS[kind].items()}
    side = {"padding_side": "left"} if kind == "qwen3" else {}
    return PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=longest, **roles, **side)
