"""Batches on several threads: order, the same bytes for any number of threads, errors, torch's own setting."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from encoder_helpers import import_settings, tiny_bert

from zerodr.encoders.inference.encoder import Encoder, Tokens, encode_batches, load_encoder
from zerodr.encoders.start.importing import copy_model
from zerodr.errors import ModelError


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    folder = tmp_path_factory.mktemp("parallel")
    copy_model(tiny_bert(folder / "plain"), folder, import_settings("tiny"), None)
    return load_encoder(folder, device="cpu")


def work(encoder: Encoder) -> tuple[Tokens, list[np.ndarray]]:
    tokens = encoder.tokenize([f"{'text ' * (i % 9)}number {i}" for i in range(50)])
    return tokens, [np.arange(start, min(start + 7, 50)) for start in range(0, 50, 7)]


def test_any_number_of_threads_gives_the_same_bytes_in_order(encoder: Encoder) -> None:
    tokens, batches = work(encoder)
    made = [list(encode_batches(encoder, tokens, batches, threads)) for threads in (1, 2, 5)]
    for other in made:
        assert [rows.tolist() for rows, _ in other] == [rows.tolist() for rows in batches]
        assert [vectors.tobytes() for _, vectors in other] == [vectors.tobytes() for _, vectors in made[0]]


def test_nothing_to_do(encoder: Encoder) -> None:
    assert list(encode_batches(encoder, work(encoder)[0], [], 2)) == []


def test_setting_of_torch_is_kept_even_after_an_early_end(encoder: Encoder) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    stream = encode_batches(encoder, *work(encoder), 2)
    next(stream)
    stream.close()
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


def test_an_error_of_a_worker_arrives(encoder: Encoder) -> None:
    tokens = Tokens(np.full(4, 10**6, np.int32), np.array([0, 2, 4]))
    with pytest.raises(ModelError, match="has 57 rows, none for token 1000000"):
        list(encode_batches(encoder, tokens, [np.array([0, 1])], 2))
