"""Write a model as ONNX graphs from token ids to vectors, which ONNX Runtime computes in many languages."""

from __future__ import annotations

import shutil
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zerodr.encoders.folder.contract import (
    SIDES,
    EncoderContract,
    read_contract,
    read_json,
    write_contract,
    write_model_json,
)
from zerodr.encoders.inference.graph import FAILURES, NEAR, probe
from zerodr.encoders.network.loading import short
from zerodr.encoders.network.tokenizing import load_tokenizer, lower_within
from zerodr.encoders.network.towers import load_tower
from zerodr.errors import ModelError

GRAPH, INPUTS, OUTPUT = "model.onnx", ["input_ids", "attention_mask"], "vector"
TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
COPIED = (TOKENIZER, SETTINGS, "special_tokens_map.json")


def write_onnx(folder: Path, target: Path) -> None:
    """Write graph, tokenizer and contract of a model folder; of separate towers into a folder for each side.

    Raises:
        ModelError: torch does not convert the network, or ONNX Runtime gives other vectors.
    """
    contract = read_contract(folder)
    target.mkdir()
    if contract.towers == "separate":
        for side in SIDES:
            write_onnx(folder / side, target / side)
        return
    tower = load_tower(folder, contract)
    tower.transformer.set_attn_implementation("eager")  # fused attention fixes lengths
    inputs = probe(tower.transformer, contract.max_tokens)
    axes = {name: {0: "texts", 1: "tokens"} for name in INPUTS} | {OUTPUT: {0: "texts"}}
    short_inputs = tuple(one[:, :8].contiguous() for one in inputs)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of traced conditions: the comparison says whether they matter
            names: dict[str, Any] = {"input_names": INPUTS, "output_names": [OUTPUT], "dynamic_axes": axes}
            traced = torch.jit.trace(tower, short_inputs, check_trace=False, strict=False)
            torch.onnx.export(traced, short_inputs, str(target / GRAPH), dynamo=False, **names)
            expected = tower(*inputs).numpy()
        vectors = _run(target / GRAPH, [one.numpy() for one in inputs])
    except FAILURES as error:
        raise ModelError(folder, f"torch.onnx does not convert it ({short(error)})", "use zerodr.Retriever") from error
    if not bool((abs(vectors - expected) <= NEAR * max(1e-6, float(abs(expected).max()))).all()):
        raise ModelError(folder, "ONNX Runtime gives other vectors than torch", "use zerodr.Retriever")
    write_contract(target, contract)
    write_tokenizer(folder, contract, target)


def write_tokenizer(folder: Path, contract: EncoderContract, target: Path) -> None:
    """Write the tokenizer so that a program which reads it alone lowers and cuts texts as the contract says.

    Publishers leave other lengths in its files, and padding: all-MiniLM-L6-v2 has 128, where the model reads 256.
    """
    for name in COPIED:
        if (folder / name).exists():
            shutil.copyfile(folder / name, target / name)
    if (target / SETTINGS).exists():
        write_model_json(target / SETTINGS, read_json(target / SETTINGS) | {"model_max_length": contract.max_tokens})
    tokenizer = load_tokenizer(folder)
    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is None:
        return
    if contract.lowercase:
        lower_within(tokenizer)
    backend.no_padding()
    backend.enable_truncation(contract.max_tokens, direction=tokenizer.truncation_side)
    backend.save(str(target / TOKENIZER))


def _run(graph: Path, inputs: list[np.ndarray]) -> np.ndarray:
    """Compute vectors by ONNX Runtime."""
    runtime = import_module("onnxruntime")  # no requirement: who exports ONNX installs it
    session = runtime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    return session.run([OUTPUT], dict(zip(INPUTS, inputs, strict=True)))[0]
