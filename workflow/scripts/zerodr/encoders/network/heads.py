"""Make a text's vector of its tokens' vectors: pool, project, scale.

Projections are dense layers and layer norms, each in a subfolder as in sentence-transformers.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from zerodr.encoders.folder.contract import read_json, write_model_json
from zerodr.errors import ModelError

Pooling = Literal["mean", "cls", "max", "last", "decoder_first"]
ACTIVATIONS = {kind.__name__: kind for kind in (nn.Identity, nn.Tanh, nn.ReLU, nn.GELU, nn.SiLU, nn.Sigmoid)}
WEIGHTS = "model.safetensors"
SENTENCE = "sentence_embedding"
ANCE_HEAD = ("2_Dense", "3_LayerNorm")
ANCE_STD = 0.02


def mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """Average real tokens, in float32. hidden (B, L, d), mask (B, L) of 0 and 1 -> (B, d).

    >>> hidden = torch.tensor([[[1.0, 4.0], [3.0, 2.0], [9.0, 9.0]]])
    >>> mean_pool(hidden, torch.tensor([[1, 1, 0]])).tolist()
    [[2.0, 3.0]]
    """
    weight = mask.unsqueeze(-1).to(torch.float32)
    return (hidden.float() * weight).sum(1) / weight.sum(1).clamp(min=1e-9)


def cls_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """Select the first real token. hidden (B, L, d), mask (B, L), padded on either side -> (B, d) float32.

    >>> hidden = torch.tensor([[[1.0], [3.0], [9.0]]])
    >>> cls_pool(hidden, torch.tensor([[1, 1, 0]])).tolist(), cls_pool(hidden, torch.tensor([[0, 1, 1]])).tolist()
    ([[1.0]], [[3.0]])
    """
    return _pick(hidden, mask.to(torch.int32).argmax(1))


def last_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """Select the last real token. hidden (B, L, d), mask (B, L), padded on either side -> (B, d) float32.

    >>> last_pool(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[1, 1, 0]])).tolist()
    [[3.0]]
    """
    return _pick(hidden, mask.shape[1] - 1 - mask.to(torch.int32).flip(1).argmax(1))


def max_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """Maximize each component over real tokens. hidden (B, L, d), mask (B, L) -> (B, d) float32.

    >>> max_pool(torch.tensor([[[1.0, 4.0], [3.0, 2.0], [9.0, 9.0]]]), torch.tensor([[1, 1, 0]])).tolist()
    [[3.0, 4.0]]
    """
    return hidden.float().masked_fill(mask.unsqueeze(-1) == 0, float("-inf")).amax(1)


def first_state(hidden: Tensor, mask: Tensor) -> Tensor:
    """Select a decoder's first position; `mask` is the encoder's. hidden (B, L', d), mask (B, L) -> (B, d) float32.

    >>> first_state(torch.tensor([[[5.0, 6.0]]]), torch.tensor([[1, 1, 0]])).tolist()
    [[5.0, 6.0]]
    """
    return hidden[:, 0].float()


def _pick(hidden: Tensor, position: Tensor) -> Tensor:
    return hidden[torch.arange(hidden.shape[0], device=hidden.device), position].float()


POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": mean_pool,
    "cls": cls_pool,
    "max": max_pool,
    "last": last_pool,
    "decoder_first": first_state,
}


def unit_length(vectors: Tensor) -> Tensor:
    """Scale rows to length 1; a zero row stays zero. (B, d) -> (B, d).

    >>> unit_length(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    return torch.nn.functional.normalize(vectors, dim=-1)


class Dense(nn.Module):
    """Compute activation(x W^T + b). (B, d) -> (B, size)."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True, activation: str = "Identity") -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=bias)
        self.activation = ACTIVATIONS[activation]()
        self.size = outputs

    def forward(self, x: Tensor) -> Tensor:
        """Project x (B, d) -> (B, size)."""
        return self.activation(self.linear(x))

    def settings(self) -> dict[str, Any]:
        """Return the configuration of sentence-transformers' Dense."""
        kind = type(self.activation)
        sizes = {"in_features": self.linear.in_features, "out_features": self.size}
        activation = f"{kind.__module__}.{kind.__qualname__}"
        return sizes | {"bias": self.linear.bias is not None, "activation_function": activation}


class LayerNorm(nn.Module):
    """Normalize the last axis, with gain and bias. (B, size) -> (B, size)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x (B, size) -> (B, size)."""
        return self.norm(x)

    def settings(self) -> dict[str, Any]:
        """Return the configuration of sentence-transformers' LayerNorm."""
        return {"dimension": self.size}


Projection = Dense | LayerNorm


def kind_of_projection(config: dict[str, Any]) -> str:
    """Return `Dense` or `LayerNorm`, as the config.json of a subfolder says."""
    return "LayerNorm" if "dimension" in config else "Dense"


def load_projection(folder: Path) -> Projection:
    """Load the dense layer or layer norm of a subfolder, in float32.

    Raises:
        ModelError: an option that this bench does not run, or weights that are missing or of another shape.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / WEIGHTS
    if not path.exists():
        step = "copy the model's folder again, subfolders included"
        if list(folder.glob("*.bin")):
            step = "run on the model's folder: zerodr convert FOLDER NEW_FOLDER"
        raise ModelError(folder, f"has no {WEIGHTS}", step)
    try:
        weights = {key: value.float() for key, value in load_file(path).items()}
    except SafetensorError as error:
        problem = f"is no whole safetensors file ({error})"
        raise ModelError(path, problem, "fetch or train the model again") from None
    module = _empty_projection(folder)
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        problem = f"does not fit its config.json ({str(error).splitlines()[-1].strip()})"
        raise ModelError(path, problem, "copy the model's folder again") from None
    return module


def _empty_projection(folder: Path) -> Projection:
    config = read_json(folder / "config.json")
    if kind_of_projection(config) == "LayerNorm":
        return LayerNorm(config["dimension"])
    stated = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    name = stated.rsplit(".", 1)[-1]
    if name not in ACTIVATIONS or not stated.startswith("torch.nn."):
        problem = f"a dense layer with activation {stated} is not supported"
        raise ModelError(folder, problem, f"known: {', '.join(ACTIVATIONS)}")
    inputs = {config.get("module_input_name", SENTENCE), config.get("module_output_name") or SENTENCE}
    if config.get("use_residual") or inputs != {SENTENCE}:
        problem = "a dense layer with a residual, or over tokens, is not supported"
        raise ModelError(folder, problem, "choose another model")
    return Dense(config["in_features"], config["out_features"], config.get("bias", True), name)


def save_projection(module: Projection, folder: Path) -> None:
    """Write a projection so that sentence-transformers and `load_projection` read it."""
    from safetensors.torch import save_file

    write_model_json(folder / "config.json", module.settings())
    weights = {key: value.detach().cpu().contiguous() for key, value in module.state_dict().items()}
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def ance_head(size: int, generator: torch.Generator) -> dict[str, Projection]:
    """Create Linear(D, D) with N(0, 0.02) weights and zero bias, then LayerNorm(D)  # ANCE's released code

    Returns:
        subfolder -> module, in order.
    """
    dense = Dense(size, size)
    with torch.no_grad():
        dense.linear.weight.normal_(0, ANCE_STD, generator=generator)
        dense.linear.bias.zero_()
    return dict(zip(ANCE_HEAD, (dense, LayerNorm(size)), strict=True))
