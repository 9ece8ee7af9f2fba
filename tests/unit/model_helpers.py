"""Tiny random models and a tiny collection for the tests of encoders and training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from zerodr.collections.access import CORPUS_SCHEMA
from zerodr.config.training import InitSettings
from zerodr.encoders.folder.contract import Side
from zerodr.encoders.network.trainable import BiEncoder, trained_parameters
from zerodr.encoders.start.initial import from_scratch

WORDS = (
    "river stone forest light copper engine garden winter market signal paper harbour candle silver meadow sea".split()
)
TEXTS = [
    "",
    "a river",
    "What is </s> a [SEP] candle?",
    "Copper engines in WINTER",
    "harbour " * 60,
    "Straße, naïve, 東京",
]
SMALL = {"hidden": 32, "layers": 2, "heads": 4, "vocabulary": 400}


def tiny_collection(folder: Path, documents: int = 40) -> Path:
    """A corpus of made-up sentences in the normalised format."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = {
        "id": [f"d{i}" for i in range(documents)],
        "title": [WORDS[i % 16].title() if i % 3 else "" for i in range(documents)],
        "text": [" ".join(WORDS[(i * k + k * k) % 16] for k in range(1, 12)) + f" {i}." for i in range(documents)],
    }
    pq.write_table(pa.table(rows, schema=CORPUS_SCHEMA), folder / "corpus.parquet")
    return folder


def tiny_settings(family: str = "bert", **more: object) -> InitSettings:
    """Settings of a model from scratch with two layers of width 32."""
    values = {"init": "scratch", "architecture": {"family": family} | SMALL, "query_tokens": 12, "document_tokens": 40}
    return InitSettings.model_validate(values | more)


def tiny_model(tmp_path: Path, family: str = "bert", seed: int = 7, **more: object) -> BiEncoder:
    """A random model with a tokenizer trained on the tiny collection."""
    return from_scratch(tiny_settings(family, **more), tiny_collection(tmp_path / "tiny-collection"), seed)[0]


def gated(tmp_path: Path, seed: int = 1) -> BiEncoder:
    """T5 v1.1: feed-forward blocks with two branches."""
    from transformers import T5Config, T5EncoderModel

    model = tiny_model(tmp_path, "t5", pooling="mean")
    torch.manual_seed(seed)
    own = model.tower("document").transformer.config
    config = T5Config(
        vocab_size=own.vocab_size,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_heads=4,
        num_layers=2,
        feed_forward_proj="gated-gelu",
    )
    model.towers["shared"].transformer = T5EncoderModel(config).eval()
    return model


def relative_files(folder: Path) -> dict[str, bytes]:
    """All files below a folder by relative path."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def shaken(model: BiEncoder) -> BiEncoder:
    """Every trained weight moved, so that separate towers differ and heads are not at their start."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for _, weight in trained_parameters(model):
            weight += 0.05 * torch.randn(weight.shape, generator=generator)
    return model


def vectors(model: BiEncoder, side: Side, texts: list[str] = TEXTS) -> np.ndarray:
    """Vectors of texts as one batch, without gradients."""
    with torch.no_grad():
        return model.encode(model.pad(model.tokenize(texts, side)), side).numpy()


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cosine of each row of `a` with the same row of `b`."""
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def shaken_t5(root: Path) -> Path:
    """The folder of a tiny random T5 that reads its vector from the decoder's first state."""
    settings = tiny_settings("t5", pooling="decoder_first")
    shaken(from_scratch(settings, tiny_collection(root / "collection"), 7)[0]).save(root / "model")
    return root / "model"
