"""Tokenizers for models from scratch: trained on a corpus so that the same texts always give the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from zerodr.collections.access import corpus_size, read_corpus
from zerodr.errors import ModelError

BERT_SPECIALS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_SPECIALS = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
T5_SPECIALS = {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}
SPECIALS = {"bert": BERT_SPECIALS, "distilbert": BERT_SPECIALS, "roberta": ROBERTA_SPECIALS, "t5": T5_SPECIALS}
ALPHABET = 1000
CONTINUED = "##"
MAX_DOCUMENTS = 200_000
LONGEST = 512
Texts = Callable[[], Iterable[str]]


def corpus_texts(folder: Path, most: int = MAX_DOCUMENTS) -> Iterator[str]:
    """Titles and texts of a collection: all documents, or about `most` of them at equal distances."""
    step = -(-corpus_size(folder) // most) or 1
    row = 0
    for batch in read_corpus(folder):
        for title, text in zip(batch.column("title").to_pylist(), batch.column("text").to_pylist(), strict=True):
            if row % step == 0:
                yield f"{title or ''} {text or ''}".strip()
            row += 1


def train_tokenizer(family: str, texts: Texts, size: int) -> Any:
    """A fast tokenizer of transformers, trained on `texts()`.

    Args:
        family: `bert` and `distilbert` get lower-cased word pieces, `roberta` and `t5` byte-level pair encoding.
        texts: gives the texts; called twice for word pieces.
        size: tokens at most; fewer where the texts hold fewer.
    """
    from transformers import PreTrainedTokenizerFast

    specials = SPECIALS[family]
    made = _word_pieces(texts, size) if specials is BERT_SPECIALS else _byte_pairs(texts, size, specials)
    names = {f"{role}_token": token for role, token in specials.items()}
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=LONGEST, **names)


def one_end(tokenizer: Any) -> Any:
    """The same tokenizer, except that texts which spell a special token stay text: every input has exactly one end.

    Splitting special tokens is not enough where the vocabulary itself holds the end as a piece (T5): there the spelled
    end gets a space behind its first character.

    Raises:
        ModelError: the tokenizer is none of the `tokenizers` library, or has no token that ends a text.
    """
    from tokenizers import normalizers
    from transformers import PreTrainedTokenizerFast

    end = tokenizer.eos_token or tokenizer.sep_token
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if end is None or backend is None:
        raise ModelError(
            tokenizer.name_or_path or "tokenizer", "is no fast tokenizer with an end token", "name another"
        )
    apart = normalizers.Replace(end, f"{end[:1]} {end[1:]}")
    backend.normalizer = normalizers.Sequence([apart, *([backend.normalizer] if backend.normalizer else [])])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        split_special_tokens=True,
        **_named_specials(tokenizer),
    )


def _named_specials(tokenizer: Any) -> dict[str, Any]:
    names = ("pad_token", "eos_token", "unk_token", "bos_token", "cls_token", "sep_token", "mask_token")
    return {name: value for name in names if (value := getattr(tokenizer, name, None)) is not None}


def _word_pieces(texts: Texts, size: int) -> Any:
    """Word pieces. The trainer numbers continued letters in the order of a hash table, and breaks ties by number: they
    are given to it as special tokens first, which fixes their numbers, and then taken as plain pieces."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    special = list(BERT_SPECIALS.values())
    trained = Tokenizer(models.WordPiece(unk_token=BERT_SPECIALS["unk"]))
    trained.normalizer = normalizers.BertNormalizer(lowercase=True)
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    letters = _frequent_letters(texts(), trained.normalizer)
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=special + [CONTINUED + letter for letter in letters],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
    )
    trained.train_from_iterator(texts(), trainer)
    made = Tokenizer(models.WordPiece(trained.get_vocab(), unk_token=BERT_SPECIALS["unk"]))
    made.normalizer, made.pre_tokenizer = trained.normalizer, trained.pre_tokenizer
    made.add_special_tokens(special)
    made.post_processor = _around(processors, made, BERT_SPECIALS["cls"], BERT_SPECIALS["sep"])
    return made


def _frequent_letters(texts: Iterable[str], normalizer: Any) -> list[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(normalizer.normalize_str(text))
    letters = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))
    return sorted(letters[:ALPHABET])


def _byte_pairs(texts: Texts, size: int, specials: dict[str, str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(specials.values()),
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    made.train_from_iterator(texts(), trainer)
    made.post_processor = _around(processors, made, specials.get("cls"), specials.get("sep") or specials["eos"])
    return made


def _around(processors: Any, tokenizer: Any, first: str | None, last: str) -> Any:
    """`first` before a text where there is one, `last` behind it; of a pair, the second text has type 1."""
    start = f"{first} " if first else ""
    tokens = [(token, tokenizer.token_to_id(token)) for token in (first, last) if token]
    return processors.TemplateProcessing(
        single=f"{start}$A {last}", pair=f"{start}$A {last} $B:1 {last}:1", special_tokens=tokens
    )
