"""A clone that runs the real workflow on real collections."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml
from tests.dag.conftest import clone
from tests.forked import planners

from zerodr.retrieval.candidates import id_ranks
from zerodr.retrieval.exact import search_exact
from zerodr.retrieval.vectors import Vectors

Run = Callable[..., subprocess.CompletedProcess]
UNTRAINED = ["bm25-flat", "bm25-multifield", "brief", "hybrid-brief"]
BRIEF = {  # MiniLM over all of NFCorpus is a fifth of the whole tests' work; it has a slow test
    "brief": {"like": "all-minilm-l6-v2", "label": "MiniLM, 12 tokens", "settings": {"max_tokens": 12}},
    "hybrid-brief": {"like": "hybrid", "label": "hybrid of it", "settings": {"runs": ["bm25-multifield", "brief"]}},
}


def configure(folder: Path, mirror: Path, **changes: object) -> None:
    """Point the clone's configuration at the mirror, without a network, and change some keys."""
    path = folder / "config/config.yaml"
    values = yaml.safe_load(path.read_text()) | {"scale": "mini", "mirrors": [str(mirror)], "offline": True} | changes
    path.write_text(yaml.safe_dump(values))


def snakemake_in(folder: Path) -> Run:
    """`snakemake(...)` with the mini profile in `folder`."""

    def call(*words: str) -> subprocess.CompletedProcess:
        return planners().run("snakemake", "--profile", "config/profiles/mini", *words, cwd=folder, env=os.environ)

    return call


def compile_search(folder: Path) -> None:
    """Compile the loops of exact search here, for all tests: a clone has what was compiled when it was made."""
    np.save(folder / "vectors.npy", np.eye(2, 64, dtype=np.float32))
    queries, corpus = (Vectors.open(folder / "vectors.npy") for _ in range(2))
    list(search_exact(queries, corpus, id_ranks(pa.array(["a", "b"])), 2, None, 1))


@pytest.fixture(scope="session")
def bench(root: Path, mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone in which the main job ran on NFCorpus, without rows that train: `results/beir/nfcorpus.tsv`."""
    compile_search(tmp_path_factory.mktemp("compiled"))
    folder = clone(root, tmp_path_factory.mktemp("bench"))
    configure(folder, mirror, collections=["nfcorpus"], source="nfcorpus", methods=UNTRAINED)
    for name, recipe in BRIEF.items():
        (folder / f"config/methods/{name}.yaml").write_text(yaml.safe_dump(recipe))
    done = snakemake_in(folder)("all")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return folder
