"""Stage `assemble`: put a trained relevance module (REM) on the domain module (DAM) of any corpus  # DDR section 3"""

import logging
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from zerodr.artifacts.manifest import is_folder_artifact
from zerodr.artifacts.record import artifact_digest, read_record
from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.papers.ddr.folding import check_folding
from zerodr.papers.ddr.modular import ModularEncoder, difference, with_contract_of
from zerodr.papers.ddr.rem_files import REM, Source, check_shapes, read_rem, rem_facts, shape_of, weights_digest

log = logging.getLogger("zerodr")
MODULAR = "modular"


class AssembleSettings(Settings):
    """Params of rule assemble."""

    read_with: ClassVar = dict.fromkeys(("keep_modular", "sharpness"), ("fold", (True,)))
    fold: bool = True
    """Write a plain model. False: the modular form, which other tools can't load whole."""
    keep_modular: bool = True
    """Keep the modular form next to the plain one, in `modular`."""
    sharpness: float | None = Field(None, gt=0)
    """k of the folded adapters. None: the relevance module's own setting."""


def assemble(stage: Stage) -> None:
    """Stage: inputs `dam`, `rem` (models trained with `rem`); output `model`, in it `rem` and `modular`.

    The text's representation is the one that the REM was trained with. Of a DAM that does not stem from the model that
    the REM was trained on, the log says so (DDR without sequential initialisation).

    Raises:
        ModelError: other shapes, no plain form to be had, or one that gives other vectors.
        ConfigError: a domain module of a family that can't take a relevance module.
    """
    settings = validate(AssembleSettings, stage.params, stage.spec.name())
    dam, rem_folder, target = stage.path("dam"), stage.path("rem") / REM, stage.output("model")
    rem, source = read_rem(rem_folder)
    changes = {"fold": settings.fold} | ({"sharpness": settings.sharpness} if settings.sharpness else {})
    rem = validate(type(rem), rem.model_dump() | changes, stage.spec.name())
    encoder = BiEncoder.load(dam)
    transformer = encoder.tower("document").transformer
    check_shapes(rem_folder, rem_facts(rem_folder)["shape"], dam, shape_of(transformer))
    if rem.fold:
        check_folding(dam, transformer, rem)
    model = ModularEncoder.of(with_contract_of(encoder, rem_folder), rem, source=source)
    model.take(rem_folder)
    model.eval().save(target)
    if rem.fold:
        stage.metric("plain_relative_difference", difference(model, BiEncoder.load(target)))
    if rem.fold and settings.keep_modular:
        model.save_modular(target / MODULAR)
    stage.note(
        rem=model.facts(),
        contract=model.contract.model_dump(mode="json"),
        sequential=shares_ancestry(str(stage.spec.inputs["dam"]), source),
    )


def shares_ancestry(dam: str, source: Source | None) -> bool | None:
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
            weights |= {weights_digest(path.parent)} - {""}
        for given in record["inputs"] if record else ():
            if given["digest"] not in digests:
                digests.add(given["digest"])
                waiting.append(given["path"])
    return digests, weights
