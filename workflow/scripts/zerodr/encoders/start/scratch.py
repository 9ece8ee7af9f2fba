"""Start a model from scratch: random weights of a small architecture from a seed, and a tokenizer that is trained.

The same corpus always gives the same bytes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from zerodr.collections.access import corpus_size, read_corpus
from zerodr.config.training import Architecture
from zerodr.errors import ModelError

POSITIONS = 512
WIDENING = 4  # inner width of a feed-forward layer, as a multiple of the hidden width
BERT_SPECIALS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_SPECIALS = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
T5_SPECIALS = {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}
SPECIALS = {"bert": BERT_SPECIALS, "distilbert": BERT_SPECIALS, "roberta": ROBERTA_SPECIALS, "t5": T5_SPECIALS}
ALPHABET = 1000
CONTINUED = "##"
MAX_DOCUMENTS = 200_000
LONGEST = 512
Texts = Callable[[], Iterable[str]]


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


def corpus_texts(folder: Path, most: int = MAX_DOCUMENTS) -> Iterator[str]:
    """Read titles and texts of a collection: all documents, or about `most` of them at equal distances."""
    step = -(-corpus_size(folder) // most) or 1
    row = 0
    for batch in read_corpus(folder):
        for title, text in zip(batch.column("title").to_pylist(), batch.column("text").to_pylist(), strict=True):
            if row % step == 0:
                yield f"{title or ''} {text or ''}".strip()
            row += 1


def train_tokenizer(family: str, texts: Texts, size: int) -> Any:
    """Train a fast tokenizer of transformers on `texts()`.

    Args:
        family: `bert` and `distilbert` get lower-cased word pieces, `roberta` and `t5` byte-level pair encoding.
        texts: gives the texts; called twice for word pieces.
        size: upper limit of tokens; fewer where the texts have fewer.
    """
    from transformers import PreTrainedTokenizerFast

    specials = SPECIALS[family]
    trained = _word_pieces(texts, size) if specials is BERT_SPECIALS else _byte_pairs(texts, size, specials)
    names = {f"{role}_token": token for role, token in specials.items()}
    return PreTrainedTokenizerFast(tokenizer_object=trained, model_max_length=LONGEST, **names)


def one_end(tokenizer: Any) -> Any:
    """Copy the tokenizer so that texts which spell a special token stay text: every input has exactly one end.

    Splitting special tokens is not enough where the vocabulary contains the end as a piece (T5): there the spelled
    end gets a space behind its first character.

    Raises:
        ModelError: the tokenizer is none of the `tokenizers` library, or has no token that ends a text.
    """
    from tokenizers import normalizers
    from transformers import PreTrainedTokenizerFast

    end = tokenizer.eos_token or tokenizer.sep_token
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if end is None or backend is None:
        where = tokenizer.name_or_path or "tokenizer"
        raise ModelError(where, "is no fast tokenizer with an end token", "name another tokenizer")
    split = normalizers.Replace(end, f"{end[:1]} {end[1:]}")
    backend.normalizer = normalizers.Sequence([split, *([backend.normalizer] if backend.normalizer else [])])
    roles = (f"{role}_token" for role in ("pad", "eos", "unk", "bos", "cls", "sep", "mask"))
    options = {name: value for name in roles if (value := getattr(tokenizer, name, None)) is not None}
    options |= {"model_max_length": tokenizer.model_max_length, "split_special_tokens": True}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **options)


def _word_pieces(texts: Texts, size: int) -> Any:
    """Train word pieces. The trainer numbers continued letters in the order of a hash table, and breaks ties by number.

    So it gets them as special tokens first, which fixes their numbers; then they become plain pieces.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    special = list(BERT_SPECIALS.values())
    trained = Tokenizer(models.WordPiece(unk_token=BERT_SPECIALS["unk"]))
    trained.normalizer = normalizers.BertNormalizer(lowercase=True)
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    letters = _frequent_letters(texts(), trained.normalizer)
    tokens = special + [CONTINUED + letter for letter in letters]
    alphabet: dict[str, Any] = {"initial_alphabet": letters, "limit_alphabet": len(letters)}
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=tokens, show_progress=False, **alphabet)
    trained.train_from_iterator(texts(), trainer)
    tokenizer = Tokenizer(models.WordPiece(trained.get_vocab(), unk_token=BERT_SPECIALS["unk"]))
    tokenizer.normalizer, tokenizer.pre_tokenizer = trained.normalizer, trained.pre_tokenizer
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = _template(processors, tokenizer, BERT_SPECIALS["cls"], BERT_SPECIALS["sep"])
    return tokenizer


def _frequent_letters(texts: Iterable[str], normalizer: Any) -> list[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(normalizer.normalize_str(text))
    letters = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))
    return sorted(letters[:ALPHABET])


def _byte_pairs(texts: Texts, size: int, specials: dict[str, str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokens, alphabet = list(specials.values()), sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=tokens, show_progress=False, initial_alphabet=alphabet
    )
    tokenizer.train_from_iterator(texts(), trainer)
    end = specials.get("sep") or specials["eos"]
    tokenizer.post_processor = _template(processors, tokenizer, specials.get("cls"), end)
    return tokenizer


def _template(processors: Any, tokenizer: Any, first: str | None, last: str) -> Any:
    """Put `first`, where there is one, before a text and `last` behind it; of a pair, the second text has type 1."""
    single = f"{first} $A {last}" if first else f"$A {last}"
    tokens = [(token, tokenizer.token_to_id(token)) for token in (first, last) if token]
    return processors.TemplateProcessing(single=single, pair=f"{single} $B:1 {last}:1", special_tokens=tokens)
