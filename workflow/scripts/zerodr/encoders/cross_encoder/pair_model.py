"""Models that read two texts together: what cross-encoders and readers have in common.

A folder of one is an ordinary model for transformers, beside the contract that this module reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from zerodr.config.base import Settings, validate
from zerodr.config.training import PairSettings
from zerodr.encoders.cross_encoder.pairs import PairTokens, pad_pairs, pair_template
from zerodr.encoders.folder.contract import CONTRACT, read_json, write_model_json
from zerodr.encoders.folder.saving import ONE_FILE, save_tokenizer
from zerodr.encoders.inference.encoder import load_tokenizer
from zerodr.encoders.network.towers import (
    DTYPES,
    Precision,
    check_precision,
    check_vocabulary,
    cut_layers,
    quiet,
    short,
)
from zerodr.errors import ConfigError, ModelError


class PairContract(Settings):
    """How the outputs of this model come about."""

    max_tokens: int = Field(ge=8)
    """Longest pair, special tokens included; the second text is cut."""
    trained: bool
    """Whether its head was trained: a fresh one gives arbitrary outputs."""
    architecture: str
    """Class of the network, such as `BertForSequenceClassification`."""
    source: str
    """Where the weights came from: a hub name, a package, a folder or a stage."""
    revision: str | None = None
    """Hub commit."""


class PairModel(nn.Module):
    """Pairs of texts -> token ids -> logits. Weights are float32 always.

    Attributes:
        what: the type of model, for messages; purpose: what a trained head of it does.
        file: name of the contract in a folder; contract_type: its class.
        auto: class of transformers that loads the network, with `labels` logits.
        heads: modules that a checkpoint may lack.
        contract: lengths and origin. Replace it to name another `source` before saving.
        tokenizer: of transformers.
        network: a model of transformers with a head.
        precision: arithmetic of the network.
    """

    what: ClassVar[str]
    purpose: ClassVar[str]
    file: ClassVar[str]
    contract_type: ClassVar[type[PairContract]] = PairContract
    auto: ClassVar[str]
    labels: ClassVar[int]
    heads: ClassVar[tuple[str, ...]]

    def __init__(self, contract: Any, tokenizer: Any, network: Any, precision: Precision = "fp32") -> None:
        super().__init__()
        check_vocabulary(contract.source, tokenizer, network.config)
        check_precision(contract.source, network.config.model_type, precision, None)
        self.contract, self.tokenizer, self.precision = contract, tokenizer, precision
        self.template = pair_template(contract.source, tokenizer, getattr(network.config, "type_vocab_size", 1))
        self.network = network

    @classmethod
    def contract_values(cls, settings: PairSettings) -> dict[str, Any]:
        """What the contract takes from the settings of a new model."""
        return {"max_tokens": settings.max_tokens}

    def pad(self, pairs: Sequence[PairTokens]) -> dict[str, Tensor]:
        """The network's input for B pairs, each tensor (B, longest) int64, on the CPU."""
        return pad_pairs(pairs, self.tokenizer.pad_token_id, self.template.typed)

    def run(self, features: dict[str, Tensor]) -> Any:
        """The network's outputs for one batch from `pad`, on its device, in the model's arithmetic."""
        device, dtype = features["input_ids"].device.type, DTYPES[self.precision]
        check_precision(self.contract.source, self.network.config.model_type, self.precision, device)
        with torch.autocast(device, dtype, enabled=dtype != torch.float32):
            return self.network(**features)

    def save(self, folder: Path) -> None:
        """Write a folder for `load` and transformers. Equal weights give equal bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        self.network.save_pretrained(folder, max_shard_size=ONE_FILE)
        save_tokenizer(self.tokenizer, folder)
        write_model_json(folder / self.file, self.contract.model_dump(mode="json"))

    @classmethod
    def load(cls, folder: Path, precision: Precision = "fp32") -> Self:
        """The model of a folder, on the CPU, in evaluation mode.

        Raises:
            ModelError: the folder holds no such model of this bench, or weights are missing.
        """
        contract = cls.read_contract(folder)
        network, missing = cls.load_network(folder)
        if missing:
            raise ModelError(folder, f"lacks {len(missing)} weights, the first is {missing[0]}", "make it again")
        return cls(contract, load_tokenizer(folder), network, precision).eval()

    @classmethod
    def load_to_train(cls, folder: Path, precision: Precision) -> Self:
        """The same, which counts as trained from now on."""
        model = cls.load(folder, precision)
        model.contract = model.contract.model_copy(update={"trained": True})
        return model

    @classmethod
    def load_trained(cls, folder: Path, precision: Precision) -> Self:
        """The same, to be used.

        Raises:
            ModelError: it was never trained.
        """
        model = cls.load(folder, precision)
        if not model.contract.trained:
            raise ModelError(
                folder,
                "has a head that was never trained, its outputs would be arbitrary",
                "give its recipe a chain, or name a stage that trains it",
            )
        return model

    @classmethod
    def read_contract(cls, folder: Path) -> Any:
        """The contract of a folder.

        Raises:
            ModelError: there is none, or it is wrong.
        """
        path = folder / cls.file
        if not path.exists():
            kind = "is a bi-encoder's folder" if (folder / CONTRACT).exists() else f"has no {cls.file}"
            step = f"make one from a recipe with encoder.type: {cls.what.replace('-', '_')}"
            raise ModelError(folder, f"{kind}, expected a {cls.what} of the bench", step)
        try:
            return validate(cls.contract_type, read_json(path), str(path))
        except ConfigError as error:
            raise ModelError(error.where, error.what, f"make the {cls.what} again") from None

    @classmethod
    def load_network(cls, folder: Path, layers: int | None = None) -> tuple[Any, list[str]]:
        """The network of a folder, and the names of weights that the folder does not hold.

        Args:
            folder: what transformers loads, with weights as safetensors.
            layers: keep the first so many. None: all.

        Raises:
            ModelError: an unknown architecture, weights of another shape, or too few layers.
        """
        import transformers

        quiet()
        try:
            config = transformers.AutoConfig.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False
            )
            cut_layers(folder, config, layers)
            config.num_labels, config.output_hidden_states = cls.labels, False
            with torch.random.fork_rng(devices=[]):  # what is missing is drawn from the caller's state otherwise
                network, report = getattr(transformers, cls.auto).from_pretrained(
                    str(folder),
                    config=config,
                    dtype=torch.float32,
                    local_files_only=True,
                    trust_remote_code=False,
                    use_safetensors=True,
                    output_loading_info=True,
                )
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise ModelError(
                folder,
                f"transformers can't load it as a {cls.what} ({short(error)})",
                "choose a BERT-like model that it knows",
            ) from None
        return network.eval(), sorted(report["missing_keys"])
