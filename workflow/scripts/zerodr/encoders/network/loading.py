"""Load networks of transformers from folders: safetensors only, in float32, without downloads. List their families."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zerodr.errors import ModelError


@dataclass(frozen=True)
class NetworkFamily:
    """Facts of a family.

    Attributes:
        layers: attributes of its module that lead to its layers, where layers like them may follow (Condenser's head).
        pairs: it may be a cross-encoder or a reader.
        offset: positions are counted from the padding id on, so its table has more rows than a text has tokens.
        decoder: it is an encoder-decoder of T5's kind.
    """

    layers: str | None = None
    pairs: bool = False
    offset: bool = False
    decoder: bool = False


FAMILIES = {
    "bert": NetworkFamily("encoder.layer", pairs=True),
    "roberta": NetworkFamily("encoder.layer", pairs=True, offset=True),
    "xlm-roberta": NetworkFamily("encoder.layer", pairs=True, offset=True),
    "camembert": NetworkFamily("encoder.layer", offset=True),
    "distilbert": NetworkFamily("transformer.layer", pairs=True),
    "electra": NetworkFamily(pairs=True),
    "xlm-roberta-xl": NetworkFamily(offset=True),
    "mpnet": NetworkFamily(offset=True),
    "data2vec-text": NetworkFamily(offset=True),
    "longformer": NetworkFamily(offset=True),
    "t5": NetworkFamily(decoder=True),
    "mt5": NetworkFamily(decoder=True),
    "umt5": NetworkFamily(decoder=True),
}
T5_FAMILY = tuple(name for name, family in FAMILIES.items() if family.decoder)
UNLISTED = NetworkFamily()


def family_of(model_type: str | None) -> NetworkFamily:
    """Return the facts of a family; of one that is not listed, those of a plain encoder.

    >>> family_of("roberta").offset, family_of("modernbert").offset
    (True, False)
    """
    return FAMILIES.get(model_type or "", UNLISTED)


def families_with(fact: str) -> tuple[str, ...]:
    """List families that have a fact, in the table's order.

    >>> families_with("decoder")
    ('t5', 'mt5', 'umt5')
    """
    return tuple(name for name, family in FAMILIES.items() if getattr(family, fact))


def load_config(folder: Path, layers: int | None) -> Any:
    """Load a folder's configuration of transformers, for the first `layers` layers (None: all).

    Raises:
        ValueError: a value is of a wrong type.
    """
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    quiet()
    try:
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except StrictDataclassError as error:
        raise ValueError(str(error)) from error
    cut_layers(folder, config, layers)
    config.output_hidden_states = False
    if hasattr(config, "num_key_value_heads"):
        config.use_cache = False  # a decoder would keep keys and values of all tokens, which nothing reads
    return config


def load_network(factory: Any, folder: Path, config: Any) -> tuple[Any, list[str]]:
    """Load a folder's float32 weights as a class of transformers; return the names of missing weights, too.

    Raises:
        ModelError: a file of weights is damaged.
    """
    from safetensors import SafetensorError

    try:
        network, report = factory.from_pretrained(
            str(folder),
            config=config,
            dtype="float32",
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except SafetensorError as error:
        problem = f"holds no whole safetensors file ({short(error)})"
        raise ModelError(folder, problem, "fetch or train the model again") from None
    return network, sorted(report["missing_keys"])


def cut_layers(folder: Path | str, config: Any, layers: int | None) -> None:
    """Change a configuration of transformers to the first `layers` layers.

    Raises:
        ModelError: the checkpoint has fewer.
    """
    if layers is None:
        return
    counts = [name for name in ("num_layers", "num_decoder_layers") if config.model_type in T5_FAMILY]
    for name in counts or ["num_hidden_layers"]:
        count = getattr(config, name, None)
        if count is None or count < layers:
            problem = f"layers is {layers}, the checkpoint has {count or 'no count of layers'}"
            raise ModelError(folder, problem, f"set layers to at most {count}" if count else "remove layers")
        setattr(config, name, layers)
    if getattr(config, "layer_types", None):
        config.layer_types = list(config.layer_types)[:layers]


def short(error: Exception) -> str:
    """Return the first line of an error of another library."""
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


def quiet() -> None:
    """Keep messages and progress bars of transformers out of the log."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
