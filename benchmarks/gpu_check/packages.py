"""Packages that the check needs, which of them are here, and how the others come without a registry."""

from __future__ import annotations

import importlib.metadata
import re
from importlib.util import find_spec

from train import ROOT

NEEDED = {  # module: (package, rows)
    "torch": ("torch", "all rows"),
    "numpy": ("numpy", "all rows"),
    "pydantic": ("pydantic", "all rows: typed settings"),
    "pydantic_core": ("pydantic-core", "all rows: typed settings"),
    "annotated_types": ("annotated-types", "all rows: typed settings"),
    "typing_inspection": ("typing-inspection", "all rows: typed settings"),
    "yaml": ("PyYAML", "all rows"),
    "transformers": ("transformers", "all rows: networks"),
    "tokenizers": ("tokenizers", "all rows"),
    "safetensors": ("safetensors", "all rows: weights, checkpoints"),
    "huggingface_hub": ("huggingface-hub", "all rows: transformers imports it"),
    "regex": ("regex", "all rows: transformers imports it"),
    "pyarrow": ("pyarrow", "all rows: texts and ids"),
    "pandas": ("pandas", "all rows: judgements"),
    "numba": ("numba", "search"),
    "llvmlite": ("llvmlite", "search"),
    "threadpoolctl": ("threadpoolctl", "search"),
}
OPTIONAL = {
    "faiss": ("faiss-cpu", "IVF-PQ, K-means, exact search against faiss"),
    "sentence_transformers": ("sentence-transformers", "ratios to sentence-transformers"),
    "sklearn": ("scikit-learn", "ratios to sentence-transformers"),
    "scipy": ("scipy", "ratios to sentence-transformers"),
    "datasets": ("datasets", "ratio to sentence-transformers' trainer"),
    "accelerate": ("accelerate", "ratio to sentence-transformers' trainer"),
    "peft": ("peft", "one step of ddr"),
}


def missing(wanted: dict[str, tuple[str, str]]) -> dict[str, str]:
    """Map packages that are not installed to the rows that need them."""
    return {package: rows for module, (package, rows) in wanted.items() if find_spec(module) is None}


def pins() -> dict[str, str]:
    """Read the versions of envs/requirements.lock, by package in small letters."""
    lock = (ROOT / "envs" / "requirements.lock").read_text()
    return {name.lower(): version for name, version in re.findall(r"^([\w.-]+)==([\w.]+)", lock, re.M)}


def advice(absent: list[str]) -> list[str]:
    """Lines that say how packages come: by `make`, or as wheels beside the checkout."""
    known = pins()
    wanted = " ".join(f"{name}=={known[name.lower()]}" if name.lower() in known else name for name in absent)
    return [
        "`make` installs them. Without a registry: on a machine with one and the same Python,",
        f"  python -m pip download --no-deps --only-binary=:all: --dest wheels {wanted}",
        "copy the folder wheels/ with the checkout, and there",
        f"  python -m pip install --no-deps --no-index --find-links wheels {wanted}",
    ]


def found() -> dict[str, str]:
    """Map installed packages of the check to their versions."""
    versions = {}
    for name in [*(package for package, _ in (NEEDED | OPTIONAL).values()), "faiss-gpu"]:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
