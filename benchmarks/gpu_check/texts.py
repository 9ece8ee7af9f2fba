"""Texts of the check: documents of a small archive of a mirror folder, else words made from the seed."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from train import ROOT

ARCHIVES = ("scifact.zip", "nfcorpus.zip", "squad-v1.1.zip")  # 3, 2 and 10 MB: any one is enough
BESIDE = "shared/collections"  # where a copied checkout has its mirror
LETTERS, WORDS = "abcdefghijklmnoprstuvwz", 5000


def mirrors() -> list[Path]:
    """List the folders that may hold archives."""
    import yaml

    named = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))["mirrors"]
    return [ROOT / folder for folder in [*named, BESIDE, f"../{BESIDE}"]]


def read_texts(count: int, words: int, folders: list[Path] | None = None) -> tuple[list[str], str]:
    """Read `count` texts of exactly `words` words, and say where they come from.

    Args:
        folders: that are searched. None: the mirrors.
    """
    folders = mirrors() if folders is None else folders
    for name in ARCHIVES:
        for folder in folders:
            texts = list(islice(documents(folder / name, words), count)) if (folder / name).is_file() else []
            if len(texts) == count:
                return texts, f"{name}, {(folder / name).stat().st_size / 1e6:.1f} MB"
    wanted = f"{', '.join(ARCHIVES[:-1])} or {ARCHIVES[-1]}"
    return made_up(count, words), f"words made from the seed, as no mirror folder holds {wanted}"


def documents(archive: Path, words: int) -> Iterator[str]:
    """Read the first `words` words of documents that have as many."""
    with zipfile.ZipFile(archive) as opened:
        member = next(name for name in opened.namelist() if name.endswith("corpus.jsonl"))
        with opened.open(member) as lines:
            for line in lines:
                text = json.loads(line)["text"].split()
                if len(text) >= words:
                    yield " ".join(text[:words])


def made_up(count: int, words: int) -> list[str]:
    """Make texts of random words."""
    random = np.random.default_rng(13)
    known = ["".join(random.choice(list(LETTERS), random.integers(2, 9))) for _ in range(WORDS)]
    return [" ".join(random.choice(known, words)) for _ in range(count)]
