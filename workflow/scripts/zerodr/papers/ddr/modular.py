"""A bi-encoder of a frozen domain module (DAM) and a relevance module (REM), and the files of both forms.

The plain form is an ordinary model folder with the REM merged, and the REM by itself in its subfolder `rem`. The
modular form is the DAM's files with that subfolder; its contract names it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zerodr.encoders.folder.contract import EncoderContract, read_contract, write_contract
from zerodr.encoders.folder.saving import ONE_FILE, save_tokenizer
from zerodr.encoders.network.towers import Tower
from zerodr.encoders.network.trainable import SHARED, BiEncoder
from zerodr.encoders.pretraining.words import ordinary_ids
from zerodr.errors import ModelError
from zerodr.papers.ddr import inserting
from zerodr.papers.ddr.folding import UNFOLDED, folded
from zerodr.papers.ddr.rem_files import REM, Source, read_rem, read_weights, rem_facts, write_rem
from zerodr.papers.ddr.settings import RemSettings

TOLERANCE = 1e-4
PROBES, LONGEST = 32, 64
FIELDS = ("pooling", "similarity", "normalize", "query_tokens", "document_tokens", "query_prefix", "document_prefix")


class ModularEncoder(BiEncoder):
    """A BiEncoder with inserted modules; `save` writes the plain form, or the modular one with `fold` false.

    Attributes:
        rem: what is inserted.
        source: digests of the model artifact that the REM was trained on; None where it was none of ours.
    """

    rem: RemSettings
    source: Source | None

    @classmethod
    def of(cls, encoder: BiEncoder, rem: RemSettings, seed: int = 0, source: Source | None = None) -> ModularEncoder:
        """Put fresh modules into a bi-encoder, which is frozen and used up.

        Raises:
            ModelError: separate towers or a head.
            ConfigError: a family without known blocks.
        """
        contract = encoder.contract
        if contract.towers != "tied" or contract.projections:
            what = "two towers" if contract.towers != "tied" else f"a head ({', '.join(contract.projections)})"
            raise ModelError(
                contract.source,
                f"has {what}; a relevance module is for one network without a head",
                "set towers: tied and head: none, or rem.shape: full",
            )
        tower: Tower = encoder.towers[SHARED]  # type: ignore[assignment]
        inserting.insert(tower.transformer, rem, seed)
        modular = cls(contract, encoder.tokenizer, {SHARED: tower}, encoder.precision)
        modular.rem, modular.source = rem, source
        return modular

    @property
    def transformer(self) -> Any:
        """Return the transformers module with what is inserted."""
        return self.tower("document").transformer

    def take(self, folder: Path) -> None:
        """Copy the weights of a REM's files."""
        inserting.take_weights(self.transformer, *read_weights(folder), folder)

    def facts(self) -> dict[str, Any]:
        """Numbers of parameters of the modules and of the backbone, and the modules' share."""
        counts = inserting.counts(self.transformer)
        trained = counts["lora"] + counts["parallel_adapter"]
        return counts | {"trained": trained, "trained_share": trained / counts["backbone"]}

    def plain(self) -> BiEncoder:
        """Return the same bi-encoder without inserted modules, in evaluation mode.

        Raises:
            ModelError: its feed-forward blocks can't take up the adapters.
        """
        transformer = folded(self.contract.source, self.transformer, self.rem)
        tower = Tower(transformer, self.contract, {})
        return BiEncoder(self.contract, self.tokenizer, {SHARED: tower}, self.precision).eval()

    def save(self, folder: Path) -> None:
        """Write the plain form after a check, or the modular one; with `rem` in it. Equal weights give equal bytes.

        Raises:
            ModelError: the plain form gives other vectors.
        """
        if not self.rem.fold:
            self.save_modular(folder)
            return
        plain = self.plain()
        difference(self, plain)
        plain.save(folder)
        self.save_rem(folder / REM)

    def save_modular(self, folder: Path) -> None:
        """Write the DAM's weights with `rem` next to them."""
        folder.mkdir(parents=True, exist_ok=True)
        self.transformer.save_pretrained(folder, state_dict=self._backbone(), max_shard_size=ONE_FILE)
        save_tokenizer(self.tokenizer, folder)
        write_contract(folder, self.contract.model_copy(update={"modules": REM}))
        self.save_rem(folder / REM)

    def _backbone(self) -> dict[str, Tensor]:
        """Return the DAM's weights by their original names."""
        state = self.transformer.state_dict()
        return {
            name.replace(".base_layer.", "."): value
            for name, value in state.items()
            if ".lora_" not in name and f".{inserting.ADAPTER}." not in name
        }

    def save_rem(self, folder: Path) -> None:
        """Write the REM by itself."""
        contract = self.contract.model_dump(mode="json", include=set(FIELDS))
        write_rem(folder, self.transformer, self.rem, {"source": self.source, "contract": contract})

    @classmethod
    def load(cls, folder: Path, precision: str = "fp32") -> ModularEncoder:  # type: ignore[override]
        """Load the bi-encoder of a modular form, on the CPU, in evaluation mode."""
        contract = read_contract(folder)
        if contract.modules is None:
            raise ModelError(folder, "is no modular form", "load it with BiEncoder.load")
        plain = contract.model_copy(update={"modules": None})
        rem, source = read_rem(folder / contract.modules)
        encoder = BiEncoder.load(folder, precision, plain)  # type: ignore[arg-type]
        modular = cls.of(encoder, rem, source=source)
        modular.take(folder / contract.modules)
        return modular.eval()


def with_contract_of(encoder: BiEncoder, rem: Path) -> BiEncoder:
    """Give a bi-encoder the pooling, similarity, prefixes and lengths that a REM was trained with."""
    values = encoder.contract.model_dump() | rem_facts(rem)["contract"]
    contract = EncoderContract.model_validate(values)
    tower = Tower(encoder.tower("document").transformer, contract, {})
    return BiEncoder(contract, encoder.tokenizer, {SHARED: tower}, encoder.precision).eval()


def difference(modular: BiEncoder, plain: BiEncoder) -> float:
    """Compute the largest relative difference of the vectors of 32 random texts, in float32 and with padding.

    A text's difference is its largest in any component, as a share of the vector's largest component.

    Raises:
        ModelError: it is above 1e-4.
    """
    source, was = modular.contract.source, modular.training
    features = {key: value.to(next(modular.parameters()).device) for key, value in _probes(modular).items()}
    modular.eval()
    with torch.inference_mode():
        exact, folded = (
            model.tower("document")(features["input_ids"], features["attention_mask"]) for model in (modular, plain)
        )
    modular.train(was)
    error = float(((exact - folded).abs().amax(1) / exact.abs().amax(1)).max())
    if not error <= TOLERANCE:
        raise ModelError(
            source,
            f"the plain model's vectors differ from the modular one's by {error:.1e}, expected at most {TOLERANCE:.0e}",
            f"raise rem.sharpness, or sharpness of the stage of kind assemble; {UNFOLDED}",
        )
    return error


def _probes(model: BiEncoder) -> dict[str, Tensor]:
    """Texts of random tokens between special ones, of all lengths."""
    generator, ids = np.random.default_rng(0), ordinary_ids(model.tokenizer)
    whole = model.tokenizer("")["input_ids"]
    most = min(LONGEST, model.contract.max_tokens) - len(whole)
    lengths = np.linspace(1, max(1, most), PROBES).astype(int)
    split = min(1, len(whole) - 1) if len(whole) > 1 else 0
    return model.pad([[*whole[:split], *generator.choice(ids, length).tolist(), *whole[split:]] for length in lengths])
