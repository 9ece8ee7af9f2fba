"""Settings of DDR's relevance module (REM): networks that are inserted into a frozen backbone and trained."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from zerodr.config.additions import StageKeys
from zerodr.config.base import Settings
from zerodr.config.stages import ChainStage, PaperSettings

Shape = Literal["lora", "pa", "both", "full"]
LORA, ADAPTER = {"rank"}, {"bottleneck", "scale", "sharpness"}
READ: dict[str, set[str]] = {"lora": LORA, "pa": ADAPTER, "both": LORA | ADAPTER, "full": set()}


class RemSettings(Settings):
    """The relevance module of a fine-tuning stage (DDR section 3.1). The parent model is its domain module (DAM)."""

    retired: ClassVar = {"alpha": None, "targets": ["query", "value"], "activation": "relu", "go_on": False}
    shape: Shape = "both"
    """`lora`, `pa` (parallel adapter) or `both`, with the backbone frozen. `full`: no module, all weights learn."""
    rank: int = Field(192, ge=1)
    """Of LoRA's matrices, at the queries' and values' projections of every attention."""
    bottleneck: int = Field(192, ge=1)
    """Inner width of the parallel adapters."""
    scale: float = Field(4.0, gt=0)
    """Factor on what an adapter adds."""
    sharpness: float = Field(1024.0, gt=0)
    """k of gelu(kx)/k, which stands for an adapter's relu in the plain model; error at most 0.17/k a unit. A power of
    two; from 16384 on fp16 overflows."""
    fold: bool = True
    """Write a plain model, modules merged. False: the modular form, which other tools can't load whole."""

    @model_validator(mode="after")
    def _read(self) -> RemSettings:
        given = {key for key in self.model_fields_set if getattr(self, key) != type(self).model_fields[key].default}
        unread = sorted(given - READ[self.shape] - {"shape", "fold"})
        if unread or self.shape == "full" and given - {"shape"}:
            key = (unread or sorted(given - {"shape"}))[0]
            raise ValueError(f"{key} is not for shape {self.shape}")
        if not math.log2(self.sharpness).is_integer():
            raise ValueError(f"sharpness is a power of two, so that scaling is exact; found {self.sharpness:g}")
        return self

    @property
    def has_lora(self) -> bool:
        """Whether there are LoRA matrices."""
        return self.shape in ("lora", "both")

    @property
    def has_adapters(self) -> bool:
        """Whether there are parallel adapters."""
        return self.shape in ("pa", "both")


class ModuleKeys(StageKeys):
    """Keys of a fine-tuning stage that trains a relevance module (DDR)."""

    rem: RemSettings
    """Trains a relevance module in the frozen model before (DDR). None: all weights."""

    @property
    def freezing(self) -> str | None:
        """Return `rem` if the stage has a relevance module."""
        return None if self.rem.shape == "full" else "rem"


class AssembleSettings(Settings):
    """How both modules are joined; params of rule assemble."""

    retired: ClassVar = {"keep_modular": True, "sharpness": None}
    fold: bool = True
    """Write a plain model, and the modular form next to it. False: the modular form alone, which other tools can't
    load whole."""


class AssembleStage(ChainStage, AssembleSettings):
    """One stage of a chain that puts a trained relevance module into a domain module (DDR). Nothing is trained."""

    kind: Literal["assemble"]
    """Joins two stages' models."""
    dam: str
    """The domain module: a stage before, `<stage>.<step>`, `init`, or `<recipe>/<stage>` of another recipe."""
    rem: str
    """The stage before that was trained with `rem`, or a kept step of it."""

    @property
    def parents(self) -> dict[str, str | None]:
        """Both modules."""
        return {"dam": self.dam, "rem": self.rem}

    @property
    def foreign(self) -> tuple[str, ...]:
        """The domain module."""
        return ("dam",)


SETTINGS = PaperSettings(finetune=ModuleKeys, stages={"assemble": AssembleStage})
