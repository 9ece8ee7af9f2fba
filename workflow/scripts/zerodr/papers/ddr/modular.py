"""A bi-encoder of a frozen domain module (DAM) and a relevance module (REM), and stage `assemble`, which joins them.

The plain form is an ordinary model folder with the REM merged, and the REM by itself in its subfolder `rem`. The
modular form is the DAM's files with that subfolder; its contract names it. Stage `assemble` puts a trained REM on the
DAM of any corpus (DDR section 3.1).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zerodr.artifacts.manifest import is_folder_artifact
from zerodr.artifacts.record import artifact_digest, read_record
from zerodr.artifacts.stage import Stage
from zerodr.config.base import validate
from zerodr.encoders.folder.contract import EncoderContract, read_contract, write_contract
from zerodr.encoders.folder.layout import ONE_FILE, save_tokenizer
from zerodr.encoders.network.towers import Tower
from zerodr.encoders.network.trainable import SHARED, BiEncoder
from zerodr.encoders.pretraining.prediction import ordinary_ids
from zerodr.errors import ModelError
from zerodr.papers.ddr import folders, inserting
from zerodr.papers.ddr.folding import UNFOLDED, check_folding, folded
from zerodr.papers.ddr.settings import AssembleSettings, RemSettings

TOLERANCE = 1e-4
PROBES, LONGEST = 32, 64
FIELDS = ("pooling", "similarity", "normalize", "query_tokens", "document_tokens", "query_prefix", "document_prefix")
log = logging.getLogger("zerodr")
MODULAR = "modular"


class ModularEncoder(BiEncoder):
    """A BiEncoder with inserted modules; `save` writes the plain form, or the modular one with `fold` false.

    Attributes:
        rem: what is inserted.
        source: digests of the model artifact that the REM was trained on; None where it was none of ours.
    """

    rem: RemSettings
    source: folders.Source | None

    @classmethod
    def of(
        cls, encoder: BiEncoder, rem: RemSettings, seed: int = 0, source: folders.Source | None = None
    ) -> ModularEncoder:
        """Put fresh modules into a bi-encoder, which is frozen and used up.

        Raises:
            ModelError: separate towers or a head.
            ConfigError: a family without known blocks.
        """
        contract = encoder.contract
        if contract.towers != "tied" or contract.projections:
            what = "two towers" if contract.towers != "tied" else f"a head ({', '.join(contract.projections)})"
            problem = f"has {what}; a relevance module is for one network without a head"
            raise ModelError(contract.source, problem, "set towers: tied and head: none, or rem.shape: full")
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
        inserting.take_weights(self.transformer, *folders.read_weights(folder), folder)

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
        self.save_rem(folder / folders.REM)

    def save_modular(self, folder: Path) -> None:
        """Write the DAM's weights with `rem` next to them."""
        folder.mkdir(parents=True, exist_ok=True)
        self.transformer.save_pretrained(folder, state_dict=self._backbone(), max_shard_size=ONE_FILE)
        save_tokenizer(self.tokenizer, folder)
        write_contract(folder, self.contract.model_copy(update={"modules": folders.REM}))
        self.save_rem(folder / folders.REM)

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
        folders.write_rem(folder, self.transformer, self.rem, {"source": self.source, "contract": contract})

    @classmethod
    def load(cls, folder: Path, precision: str = "fp32") -> ModularEncoder:  # type: ignore[override]
        """Load the bi-encoder of a modular form, on the CPU, in evaluation mode."""
        contract = read_contract(folder)
        if contract.modules is None:
            raise ModelError(folder, "is no modular form", "load it with BiEncoder.load")
        plain = contract.model_copy(update={"modules": None})
        rem, source = folders.read_rem(folder / contract.modules)
        encoder = BiEncoder.load(folder, precision, plain)  # type: ignore[arg-type]
        modular = cls.of(encoder, rem, source=source)
        modular.take(folder / contract.modules)
        return modular.eval()


def with_contract_of(encoder: BiEncoder, rem: Path) -> BiEncoder:
    """Give a bi-encoder the pooling, similarity, prefixes and lengths that a REM was trained with."""
    values = encoder.contract.model_dump() | folders.rem_facts(rem)["contract"]
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
            f"raise rem.sharpness; {UNFOLDED}",
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


def assemble(stage: Stage) -> None:
    """Stage: inputs `dam`, `rem` (models trained with `rem`); output `model`, in it `rem` and `modular`.

    The text's representation is the one that the REM was trained with. Of a DAM that does not stem from the model that
    the REM was trained on, the log says so (DDR without sequential initialisation).

    Raises:
        ModelError: other shapes, no plain form exists, or it gives other vectors.
        ConfigError: a domain module of a family that can't take a relevance module.
    """
    settings = validate(AssembleSettings, stage.params, stage.spec.name())
    dam, rem_folder, target = stage.path("dam"), stage.path("rem") / folders.REM, stage.output("model")
    rem, source = folders.read_rem(rem_folder)
    rem = rem.model_copy(update={"fold": settings.fold})
    encoder = BiEncoder.load(dam)
    transformer = encoder.tower("document").transformer
    folders.check_shapes(rem_folder, folders.rem_facts(rem_folder)["shape"], dam, folders.shape_of(transformer))
    if rem.fold:
        check_folding(dam, transformer, rem)
    model = ModularEncoder.of(with_contract_of(encoder, rem_folder), rem, source=source)
    model.take(rem_folder)
    model.eval().save(target)
    if rem.fold:
        stage.metric("plain_relative_difference", difference(model, BiEncoder.load(target)))
        model.save_modular(target / MODULAR)
    stage.note(
        rem=model.facts(),
        contract=model.contract.model_dump(mode="json"),
        sequential=shares_ancestry(str(stage.spec.inputs["dam"]), source),
    )


def shares_ancestry(dam: str, source: folders.Source | None) -> bool | None:
    """Check whether a DAM stems from the model that a REM was trained on; warn where it does not, or is unknown.

    Args:
        dam: manifest.
        source: digests of that model; None where it was no artifact.
    """
    if source is None:
        log.warning(
            "%s: the relevance module does not say which model it was trained on, so it is unknown whether "
            "this domain module stems from it (DDR) or not (DDR\\SI)",
            dam,
        )
        return None
    artifacts, weights = ancestry(dam)
    related = source["artifact"] in artifacts or source["weights"] in weights
    if not related:
        log.warning(
            "%s: does not stem from the model that the relevance module was trained on. This is the ablation "
            "DDR\\SI (no sequential initialisation), which the paper finds worse: start the target's domain "
            "module from the source's",
            dam,
        )
    return related


def ancestry(artifact: str) -> tuple[set[str], set[str]]:
    """Digests of an artifact and of everything that it was made from, and of their weights, by records and manifests.

    The same weights may be in several artifacts: another recipe that starts from a stage copies them.
    """
    digests, weights, waiting = {artifact_digest(artifact)}, set[str](), [artifact]
    while waiting:
        path = Path(waiting.pop())
        record = read_record(path)
        if is_folder_artifact(path) and path.exists():
            weights |= {folders.weights_digest(path.parent)} - {""}
        for given in record["inputs"] if record else ():
            if given["digest"] not in digests:
                digests.add(given["digest"])
                waiting.append(given["path"])
    return digests, weights
