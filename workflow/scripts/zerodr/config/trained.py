"""Settings of trained methods as recipes write them: the core's stages with what the papers add."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union

from pydantic import BaseModel, Discriminator, Tag, create_model

from zerodr.config import params, stages
from zerodr.config.stages import ChainStage, FinetuneStage, LearningStage, PaperSettings, PretrainStage
from zerodr.config.training import CrossEncoderSettings, InitSettings, StartSettings
from zerodr.papers import modules

Model = TypeVar("Model", bound=BaseModel)
PAPERS: list[PaperSettings] = [module.SETTINGS for module in modules("settings")]


def extended(core: type[Model], **fields: Any) -> type[Model]:
    """The class with the fields and checks of all papers' extensions of it, in the papers' order.

    Args:
        core: the class.
        fields: fields of other types than the core's, as pydantic's `create_model` takes them.
    """
    every = [extension for paper in PAPERS for extension in paper.extensions]
    extensions = [extension for extension in every if any(issubclass(core, base) for base in extension.__bases__)]
    bases = (*([] if any(issubclass(extension, core) for extension in extensions) else [core]), *reversed(extensions))
    described: dict[str, Any] = {"__doc__": core.__doc__, "__module__": core.__module__}
    build: Callable[..., Any] = create_model
    combined = build(core.__name__, __base__=bases, **described, **fields)
    if issubclass(core, ChainStage):
        combined.added = frozenset(combined.model_fields) - frozenset(core.model_fields)
    return combined


STAGES: dict[str, type[ChainStage]] = {  # the first where a stage names none
    "finetune": extended(FinetuneStage),
    "pretrain": extended(PretrainStage),
    **{kind: extended(stage) for paper in PAPERS for kind, stage in paper.stages.items()},
}
STAGE_KINDS = tuple(STAGES)
ENCODERS: dict[str, type[StartSettings]] = {
    "bi_encoder": InitSettings,
    "cross_encoder": CrossEncoderSettings,
    **{name: encoder for paper in PAPERS for name, encoder in paper.encoders.items()},
}


def _any_of(choices: Mapping[str, type[BaseModel]], key: str) -> Any:
    """The type of settings whose `key` says which of the choices they are; the first where it says nothing known."""
    first = next(iter(choices))

    def chosen(value: Any) -> str:
        name = value.get(key, first) if isinstance(value, dict) else getattr(value, key)
        return name if name in choices else first

    kinds = tuple(Annotated[choice, Tag(name)] for name, choice in choices.items())
    return Annotated[Union[kinds], Discriminator(chosen)]  # noqa: UP007


def _stage(core: type[ChainStage]) -> Any:
    """The type of a stage of any kind below `core`."""
    return _any_of({kind: stage for kind, stage in STAGES.items() if issubclass(stage, core)}, "kind")


if TYPE_CHECKING:
    from zerodr.config.params import ExportParams, FinetuneParams, PretrainParams
    from zerodr.config.stages import TrainedSettings
else:
    TrainedSettings = extended(
        stages.TrainedSettings,
        encoder=(_any_of(ENCODERS, "type"), ...),
        chain=(dict[str, _stage(ChainStage)], {}),
    )
    FinetuneParams = extended(params.FinetuneParams, settings=(_stage(LearningStage), ...))
    ExportParams = extended(params.ExportParams)
    PretrainParams = extended(params.PretrainParams, settings=(STAGES["pretrain"], ...))

__all__ = ["ExportParams", "FinetuneParams", "PretrainParams", "TrainedSettings"]
