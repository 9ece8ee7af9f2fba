"""Compare vectors with those that sentence-transformers computes from a folder, in float32."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zerodr.encoders.folder.contract import SIDES, EncoderContract, Side
from zerodr.encoders.network.loading import quiet, short
from zerodr.errors import ModelError

EASY = ("", "dense retrieval", "What does a bi-encoder compare?", "A text that is longer than most. " * 40)
PROBES = (*EASY, "Grüße, 你好, naïve", "1 + 1 = 2 </s> [SEP] <s>")
TOGETHER = 2  # texts of a batch: padded, and not all as long as the longest, which large models are slow with
FAILURES = (OSError, ValueError, ImportError, TypeError, RuntimeError, LookupError, AttributeError, AssertionError)
Vectors = Callable[[Sequence[str], Side], np.ndarray]


def load_peer(folder: Path) -> Any:
    """Load a folder with sentence-transformers, in float32, without remote code.

    Raises:
        ModelError: it can't.
    """
    import torch
    from sentence_transformers import SentenceTransformer

    quiet()
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    options: dict[str, Any] = {"device": "cpu", "local_files_only": True, "trust_remote_code": False}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return SentenceTransformer(str(folder), model_kwargs={"dtype": torch.float32}, **options).float()
    except FAILURES as error:
        step = "compare its version with the pinned one"
        raise ModelError(folder, f"sentence-transformers can't load it ({short(error)})", step) from error


def smallest_cosine(
    peer: Any, ours: Vectors, prompts: EncoderContract | None = None, texts: Sequence[str] = PROBES
) -> float:
    """Compute the smallest cosine between our vectors and those of sentence-transformers, over texts and sides.

    Args:
        peer: of `load_peer`.
        ours: (texts, side) -> (texts, D).
        prompts: instead of the peer's own prompts, those of this contract.
        texts: to encode.

    Raises:
        ModelError: the vectors have different sizes.
    """
    cosines = []
    for side in SIDES:
        left = ours(texts, side).astype(np.float64)
        encode = peer.encode_query if side == "query" else peer.encode_document
        options = {} if prompts is None else {"prompt": prompts.prefix(side)}
        right = encode(list(texts), batch_size=TOGETHER, show_progress_bar=False, **options).astype(np.float64)
        if left.shape != right.shape:
            problem = f"has vectors of {right.shape[1]} components in sentence-transformers, of {left.shape[1]} here"
            raise ModelError("the model", problem, "compare its json files with the list in docs/models.md")
        cosines.append((left * right).sum(1) / (np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)))
    return float(np.min(cosines))
