"""Which documents are learned from: three tokens at least, each text once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.encoder_helpers import save_tokenizer

from zerodr.artifacts.parquet import list_array
from zerodr.encoders.network.tokenizing import load_tokenizer
from zerodr.errors import CollectionError
from zerodr.mining.spans import SCHEMA
from zerodr.training.pretraining.corpora import PREFIX, long_enough, screened


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(folder)
    return load_tokenizer(folder)


def blocks(texts: list[str], size: int = 2):
    def read():
        for start in range(0, len(texts), size):
            part = texts[start : start + size]
            ids = pa.array([f"d{start + place}" for place in range(len(part))])
            spans = list_array(np.ones(len(part), np.int64), pa.array(part, pa.string()))
            yield pa.RecordBatch.from_arrays([ids, spans], schema=SCHEMA)

    return read


def kept(texts: list[str], tokenizer, size: int = 2) -> tuple[list[str], Counter]:
    counts: Counter = Counter()
    made = [
        key
        for block in screened("sea", blocks(texts, size), tokenizer, counts)
        for key in block.column("id").to_pylist()
    ]
    return made, counts


@pytest.mark.parametrize("size", [1, 2, 5])
def test_short_and_repeated_texts_are_left_out(tokenizer, size):
    texts = ["a b", "abc", "a b c", "abc", "x", "a b c ", "abc"]
    made, counts = kept(texts, tokenizer, size)
    assert made == ["d1", "d2", "d5"] and counts == {"too_short": 2, "repeated": 2}


def test_a_long_beginning_without_tokens_is_read_to_its_end(tokenizer):
    texts = [" " * PREFIX + " a b c", "a" * 500, " " * 500, "a b c"]
    assert long_enough(texts, tokenizer).tolist() == [True, False, False, True]  # 500 letters in a word are [UNK]


def test_a_corpus_without_a_document_of_three_tokens_is_refused(tokenizer):
    with pytest.raises(CollectionError, match=r"sea: has no document of at least 3 tokens \(3 documents have a text\)"):
        kept(["a", "a b", "a"], tokenizer)
