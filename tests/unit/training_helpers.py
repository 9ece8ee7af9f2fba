"""Tiny bi-encoders, collections and mined data for the tests of training."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from tests.forked import trainers
from tests.unit.encoder_helpers import LETTERS, make_collection, save_tokenizer, tiny_bert

from zerodr.artifacts.manifest import build_manifest
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.encoders.folder.contract import EncoderContract
from zerodr.encoders.network.heads import ance_head
from zerodr.encoders.network.towers import Tower, load_transformer
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.training.data.examples import Examples, Ragged, load_examples
from zerodr.training.distributed import processes
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.engine import Engine

QUERIES, DOCUMENTS = 48, 60
TWELVE_STEPS = {
    "steps": 12,
    "batch_queries": 8,
    "learning_rate": 1e-3,
    "checkpoint_steps": 5,
    "dev_queries": 4,
    "warmup_steps": 2,
}


def words(generator: np.random.Generator, low: int, high: int) -> str:
    return " ".join("".join(generator.choice(list(LETTERS), 4)) for _ in range(generator.integers(low, high)))


def tiny_model(folder: Path, seed: int = 0, towers: str = "tied", head: bool = False, **config: Any) -> Path:
    """A saved random bi-encoder: BERT, 2 layers, 32 components."""
    import torch

    tiny_bert(folder.with_name(f"{folder.name}-bert"), seed, **config)
    contract = EncoderContract(
        pooling="mean",
        normalize=False,
        similarity="dot",
        max_tokens=32,
        query_tokens=12,
        dimension=32,
        towers=towers,
        architecture="BertModel",
        source="test",
        projections=("2_Dense", "3_LayerNorm") if head else (),
    )

    def tower() -> Tower:
        own = contract.model_copy(update={"towers": "tied"})
        heads = ance_head(32, torch.Generator().manual_seed(seed)) if head else {}
        return Tower(load_transformer(folder.with_name(f"{folder.name}-bert"), "mean"), own, heads)

    from zerodr.encoders.network.tokenizing import load_tokenizer

    save_tokenizer(folder.with_name(f"{folder.name}-bert"))
    tokenizer = load_tokenizer(folder.with_name(f"{folder.name}-bert"))
    names = ["shared"] if towers == "tied" else ["query", "document"]
    BiEncoder(contract, tokenizer, {name: tower() for name in names}).save(folder)
    return folder


def load_tiny(folder: Path, dropout: float | None = 0.0, precision: str = "fp32") -> BiEncoder:
    from zerodr.training.loop.speed import set_dropout

    model = BiEncoder.load(folder, precision=precision)
    if dropout is not None:
        set_dropout(model, dropout)
    return model.train()


def seal(folder: Path) -> None:
    """Write the manifest of a folder as it is now."""
    (folder / "manifest.json").unlink(missing_ok=True)
    (folder / "manifest.json").write_text(json.dumps(build_manifest(folder)))


def make_source(folder: Path, seed: int = 5) -> Path:
    """A collection whose train queries hold words of their positive documents. Returns the folder."""
    generator = np.random.default_rng(seed)
    documents = [(f"d{i}", f"title{i}" if i % 3 else "", words(generator, 2, 12)) for i in range(DOCUMENTS)]
    queries = [(f"q{i}", " ".join(documents[i][2].split()[:2])) for i in range(QUERIES)]
    make_collection(folder, documents, queries)
    rows = [f"q{i}\td{i}\t1\n" for i in range(QUERIES)] + ["q0\td50\t2\n", "q1\td51\t1\n", "q2\td52\t0\n"]
    (folder / "qrels.train.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    (folder / "qrels.none.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td0\t0\n")
    seal(folder)
    return folder


def make_mined(
    folder: Path, count: int = 4, scored: bool = False, rows: list[tuple] | None = None, seed: int = 7
) -> Path:
    """Mined negatives for `make_source`. Returns the folder."""
    generator = np.random.default_rng(seed)
    if rows is None:
        rows = []
        for i in range(QUERIES):
            positives = [f"d{i}"] + ([f"d{50 + i}"] if i < 2 else [])
            others = [f"d{j}" for j in generator.permutation(DOCUMENTS) if f"d{j}" not in positives]
            rows.append((f"q{i}", positives, others[:count]))
    columns = {
        "query": pa.array([row[0] for row in rows], pa.string()),
        "positives": pa.array([row[1] for row in rows], pa.list_(pa.string())),
        "negatives": pa.array([row[2] for row in rows], pa.list_(pa.string())),
    }
    name = "mined.parquet"
    if scored:
        name = "scored.parquet"
        values = [generator.normal(size=1 + len(row[2])).astype(np.float32) for row in rows]
        columns["scores"] = pa.array(values, pa.list_(pa.float32()))
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / name)
    seal(folder)
    return folder


def tiny_examples(folder: Path, scored: bool = False) -> Examples:
    source, mined = make_source(folder / "source"), make_mined(folder / "mined")
    return load_examples(mined, source, " ", make_mined(folder / "scored", scored=True) if scored else None)


def without_scores(examples: Examples) -> Examples:
    return replace(examples, scores=None)


def known_of(ids: list[str], positives: list[set[str]]) -> torch.Tensor:
    """Known positives of each query among the documents of all, as (query, place)."""
    pairs = [(row, place) for row, own in enumerate(positives) for place, key in enumerate(ids) if key in own]
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)


def ragged(lists: list[list[int]], kind: type = np.int32) -> Ragged:
    values = np.array([value for row in lists for value in row], kind)
    return Ragged(values, np.r_[0, np.cumsum([len(row) for row in lists])].astype(np.int64))


def tiny_settings(**changes: Any) -> dict[str, Any]:
    """Params of a small finetuning stage; keys of `training` and `objective` may be changed by name."""
    training = dict(TWELVE_STEPS)
    objective = {"name": "info_nce", "negatives_per_query": 1}
    settings: dict[str, Any] = {"training": training, "objective": objective}
    place: dict[str, Any] = {"stage": "ep0", "stage_index": 0, "total_steps": 12}
    params: dict[str, Any] = {"source_split": "train", "settings": settings, "schedule": place}
    homes = dict.fromkeys(("name", "negatives_per_query", "in_batch"), objective)
    homes |= dict.fromkeys(("total_steps", "first_step", "stage_index"), place)
    homes |= dict.fromkeys(("source_split", "processes", "gpus", "save_optimizer"), params) | {"rem": settings}
    for key, value in changes.items():
        homes.get(key, training)[key] = value
    if not objective["negatives_per_query"]:
        settings["negatives"] = {"source": "none"}
    if objective["name"] in ("margin_mse", "kl"):
        settings["teacher"] = "teacher"
    return params


def lay_out(root: Path, scored: bool = False) -> Path:
    """A project folder with a model, a source and mined data; tests `chdir` into it."""
    make_source(root / "results/source")
    make_mined(root / "results/mined")
    if scored:
        make_mined(root / "results/scored", scored=True)
    model = tiny_model(root / "results/init")
    seal(model)
    return root


def finetune_spec(
    place: str = "ep0", inputs: dict[str, str] | None = None, outputs: dict[str, str] | None = None, **changes: Any
) -> StageSpec:
    named = {
        "model": "results/init/manifest.json",
        "mined": "results/mined/manifest.json",
        "source": "results/source/manifest.json",
    } | (inputs or {})
    made = {"model": f"results/{place}/manifest.json"} | (outputs or {})
    return StageSpec(
        "finetune",
        1,
        {"model": "tiny", "stage": place},
        named,
        made,
        tiny_settings(**changes),
        13,
        1,
    )


def weights_in(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def alone() -> dict[str, str]:
    """Environment for a child process that finds the library."""
    import zerodr

    root = Path(zerodr.__file__).resolve().parents[1]
    return os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}


@contextmanager
def cut_off(monkeypatch: pytest.MonkeyPatch, at: int) -> Iterator[None]:
    """The training inside is interrupted before step `at`."""
    one = Engine._one

    def until(engine: Engine, position: Any, ahead: Any) -> float:
        if position.step == at:
            raise KeyboardInterrupt
        return one(engine, position, ahead)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Engine, "_one", until)
        yield


def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets every step that is begun from now on."""
    one, steps = Engine._one, list[int]()
    monkeypatch.setattr(Engine, "_one", lambda *given: (steps.append(given[1].step), one(*given))[1])
    return steps


def run_two_processes(root: Path, probe: str, folder: Path) -> list[dict[str, Any]]:
    """Run `tests.unit.<probe> FOLDER FOLDER/two` in two processes; the tensors that each wrote."""
    words = [f"tests.unit.{probe}", str(folder), str(folder / "two")]
    environment = alone() | {"GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": "2"}
    environment["PYTHONPATH"] += f"{os.pathsep}{root}"
    started = [trainers().start(*words, cwd=folder, env=environment | {"RANK": str(rank)}) for rank in (0, 1)]
    for program in started:
        _, said = program.communicate()
        assert program.returncode == 0, said
    return [load_file(folder / f"two-{rank}.safetensors") for rank in (0, 1)]


class ForkedRanks:
    """The processes of a stage as forks; test_weighting_training starts them by torch.distributed.run, as stages do."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        *_, job, processes = command
        with socket.create_server(("127.0.0.1", 0)) as free:
            meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": processes}
        ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(int(processes))]
        words = ("zerodr.training.distributed.worker", "rank", job)
        self.ranks = [trainers().start(*words, cwd=Path.cwd(), env=env | meet | rank) for rank in ranks]

    def __enter__(self) -> ForkedRanks:
        return self

    def __exit__(self, *_: object) -> None: ...

    def wait(self) -> int:
        return max(rank.wait() for rank in self.ranks)


def fork_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the processes of a stage as forks."""
    monkeypatch.setattr(processes, "subprocess", SimpleNamespace(Popen=ForkedRanks))


def write_tensors(compute: Callable[[Path], dict[str, torch.Tensor]]) -> None:
    """The main program of a probe: what `compute` answers for argv[1] goes to argv[2] and this process's rank."""
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        place = f"file://{sys.argv[2]}-met"
        dist.init_process_group("gloo", place, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    tensors = compute(Path(sys.argv[1]))
    save_file(tensors, f"{sys.argv[2]}-{Group().rank}.safetensors")
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def cut_and_resumed(spec: Callable[..., StageSpec], monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Stage `whole` runs through; stage `cut` is interrupted before step 6 and goes on from step 4."""
    run_spec(spec("whole", **changes))
    with cut_off(monkeypatch, 6):
        run_spec(spec("cut", **changes))
    started = begun(monkeypatch)
    run_spec(spec("cut", **changes))
    assert started[0] == 4
