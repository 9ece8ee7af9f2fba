"""Find the network of a model: from its folder, its settings or its initial model."""

import importlib.util
import json
from pathlib import Path
from typing import Any

from zerodr.config.methods import EncoderMethod, TrainedMethod
from zerodr.config.starts import PACKAGE, SCRATCH, line_of
from zerodr.config.training import InitSettings
from zerodr.errors import ConfigError
from zerodr.plan import Plan
from zerodr.plan.dense import model_of
from zerodr.plan.memory import Network

BERT_BASE = Network(768, 12, 12, 30522)  # of models whose folder is not here yet


def network_of(plan: Plan, model: str, scope: str) -> Network:
    """Return the network of a model, BERT_BASE where it is unknown yet."""
    return known_network(plan, model, scope) or BERT_BASE


def known_network(plan: Plan, model: str, scope: str) -> Network | None:
    """Return the network of a model; None when unknown yet."""
    recipe, start, cut = model.partition("@")[0], "", None
    method = plan.bench.methods[recipe]
    if isinstance(method, EncoderMethod):
        start = method.settings.model
    elif isinstance(method, TrainedMethod):
        origin = line_of(recipe, plan.bench.methods)[-1]
        if isinstance(origin, InitSettings) and origin.init == SCRATCH:
            small = origin.architecture
            return Network(small.hidden, small.layers, small.heads, small.vocabulary, small.family == "t5")
        start, cut = origin.init, origin.layers
    for folder in [*_built(plan, model, scope), *(_model_folders(start) if start else ())]:
        if (folder / "config.json").exists():
            network = _network(json.loads((folder / "config.json").read_text(encoding="utf-8")))
            return network and network._replace(layers=int(cut or network.layers))
    return None


def _network(config: dict[str, Any]) -> Network | None:
    """Read the network of a model's config.json; None where it has no width."""

    def number(*names: str, usual: int) -> int:
        return int(next((config[name] for name in names if config.get(name)), usual))

    width = number("hidden_size", "d_model", "dim", usual=0)
    if not width:
        return None
    return Network(
        width,
        number("num_hidden_layers", "num_layers", "n_layers", usual=BERT_BASE.layers),
        number("num_attention_heads", "num_heads", "n_heads", usual=BERT_BASE.heads),
        number("vocab_size", usual=BERT_BASE.vocabulary),
        bool(config.get("is_encoder_decoder")),
    )


def _built(plan: Plan, model: str, scope: str) -> list[Path]:
    """Folder of the model that ranks in a scope; none where a recipe shares its first stages alone."""
    try:
        return [Path(model_of(plan, model, scope)).parent] if plan.bench.methods[model.partition("@")[0]].ranks else []
    except ConfigError:
        return []


def _model_folders(name: str) -> list[Path]:
    """List the folders of the model that a method names: inside a Python package, or the path itself."""
    if not name.startswith(PACKAGE):
        return [Path(name)]
    spec = importlib.util.find_spec(name.removeprefix(PACKAGE))
    homes = spec.submodule_search_locations if spec else None
    return [Path(home) / "model" for home in homes or ()]
