"""Packages that the check needs: those that are missing, and how they come without a registry."""

from __future__ import annotations

import importlib.metadata
import re
from importlib.util import find_spec

from train import ROOT

NEEDED = {  # module: (package, why), for any row; with torch and what it needs, which a PyTorch image has
    "torch": ("torch", "tensors"),
    "numpy": ("numpy", "arrays"),
    "pydantic": ("pydantic", "typed settings"),
    "pydantic_core": ("pydantic-core", "pydantic imports it"),
    "annotated_types": ("annotated-types", "pydantic imports it"),
    "typing_inspection": ("typing-inspection", "pydantic imports it"),
    "yaml": ("PyYAML", "configuration"),
    "pyarrow": ("pyarrow", "texts and ids"),
    "pandas": ("pandas", "judgements, which the readers of collections import"),
    "dateutil": ("python-dateutil", "pandas imports it"),
    "transformers": ("transformers", "networks"),
    "tokenizers": ("tokenizers", "tokens"),
    "safetensors": ("safetensors", "weights and checkpoints"),
    "huggingface_hub": ("huggingface-hub", "transformers imports it"),
    "regex": ("regex", "transformers imports it"),
    "packaging": ("packaging", "transformers imports it"),
    "tqdm": ("tqdm", "transformers imports it"),
    "httpx2": ("httpx2", "huggingface-hub imports it"),
    "httpcore2": ("httpcore2", "huggingface-hub imports it"),
    "h11": ("h11", "huggingface-hub imports it"),
    "idna": ("idna", "huggingface-hub imports it"),
    "truststore": ("truststore", "huggingface-hub imports it"),
}
SEARCH = {  # for some rows
    "numba": ("numba", "rows of search"),
    "llvmlite": ("llvmlite", "rows of search"),
    "threadpoolctl": ("threadpoolctl", "rows of search"),
    "faiss": ("faiss-cpu", "the ratio to faiss"),
}
WHOLE = {  # for some rows, with many more packages
    "peft": ("peft", "one step of ddr"),
    "sentence_transformers": ("sentence-transformers", "ratios to sentence-transformers"),
    "datasets": ("datasets", "the ratio to its trainer"),
    "accelerate": ("accelerate", "the ratio to its trainer"),
}


def missing(wanted: dict[str, tuple[str, str]]) -> dict[str, str]:
    """Map packages that are not installed to the rows that need them."""
    return {package: rows for module, (package, rows) in wanted.items() if find_spec(module) is None}


def pins() -> dict[str, str]:
    """Read the versions of envs/requirements.lock, by package in small letters."""
    lock = (ROOT / "envs" / "requirements.lock").read_text(encoding="utf-8")
    return {name.lower(): version for name, version in re.findall(r"^([\w.-]+)==([\w.]+)", lock, re.M)}


def advice(absent: list[str]) -> list[str]:
    """Say how packages come: by `make`, or as wheels with the checkout."""
    known = pins()
    wanted = " ".join(f"{name}=={known[name.lower()]}" if name.lower() in known else name for name in absent)
    return [
        "`make` installs the whole lock. Without a registry: on a machine with one, and with the same Python,",
        f"  python -m pip download --no-deps --only-binary=:all: --dest wheels {wanted}",
        "copy the folder wheels/ with the checkout, and there",
        f"  python -m pip install --no-deps --no-index --find-links wheels {wanted}",
    ]


def found() -> dict[str, str]:
    """Map installed packages of the check to their versions."""
    versions = {}
    for name in (package for package, _ in (NEEDED | SEARCH | WHOLE).values()):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
