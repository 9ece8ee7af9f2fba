"""Rows of embedding: vectors of the device and of the CPU, tokens a second, against sentence-transformers' default."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import torch

from gpu_check.check import Check
from gpu_check.report import Facts

COSINE, FEW = 0.999, 8  # smallest likeness with the CPU's float32 vectors; texts that are compared
BATCH_TOKENS = 4096


def encode(check: Check, precision: str) -> Facts:
    """Embed all texts as an embedding job does, its choice of batches included."""
    from zerodr.encoders.inference.encoder import encode_batches, load_encoder
    from zerodr.retrieval.batching import plan_batches
    from zerodr.retrieval.budget import choose_tokens

    folder = check.model_folder("bert")
    encoder = load_encoder(folder, precision, check.device)  # type: ignore[arg-type]
    tokens = encoder.tokenize(check.texts)
    few = [tokens[row] for row in range(FEW)]
    plain = check.model()
    with torch.inference_mode():
        a, b = encoder.encode_batch(few), plain.encode(plain.pad(few), "document").numpy()
    cosine = float(((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())
    batch_tokens, _ = choose_tokens(encoder, int(tokens.lengths.max()), BATCH_TOKENS, check.new_folder("choice"))
    batches, seconds = plan_batches(tokens.lengths, batch_tokens), []

    def measure() -> None:
        seconds.append(check.clock(lambda: list(encode_batches(encoder, tokens, batches, 2))))

    memory = check.peak_gib(measure)
    operations = check.operations(tokens.lengths.tolist()) / seconds[0]
    facts: Facts = {"right": cosine > COSINE, "cosine": cosine}
    facts |= {"tokens_per_second": float(tokens.lengths.sum()) / seconds[0]}
    facts |= {"share_of_peak": check.share_of_peak(operations, precision)}
    facts |= {"batch_tokens": batch_tokens, "peak_gib": memory}
    if find_spec("sentence_transformers"):
        from sentence_transformers import SentenceTransformer

        peer = SentenceTransformer(str(folder), device=check.device)
        facts["times_sentence_transformers"] = check.clock(lambda: peer.encode(check.texts)) / seconds[0]
    return facts
