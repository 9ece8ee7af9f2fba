"""Settings of trained methods as recipes write them: the core's stages with what the papers add."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union

from pydantic import BaseModel, Discriminator, Field, Tag, create_model

from zerodr.config import stages
from zerodr.config.stages import ChainStage, FinetuneStage, PaperSettings, PretrainStage
from zerodr.papers import modules

Model = TypeVar("Model", bound=BaseModel)
PAPERS: list[PaperSettings] = [module.SETTINGS for module in modules("settings")]


def extended(core: type[Model]) -> type[Model]:
    """The class with the fields and checks of all papers' extensions of it, in the papers' order."""
    every = [extension for paper in PAPERS for extension in paper.extensions]
    own = [extension for extension in every if any(issubclass(core, base) for base in extension.__bases__)]
    bases = (*([] if any(issubclass(extension, core) for extension in own) else [core]), *reversed(own))
    return create_model(core.__name__, __base__=bases, __doc__=core.__doc__, __module__=core.__module__)


STAGES: dict[str, type[ChainStage]] = {  # the first where a stage names none
    "finetune": extended(FinetuneStage),
    "pretrain": extended(PretrainStage),
    **{kind: extended(stage) for paper in PAPERS for kind, stage in paper.stages.items()},
}
STAGE_KINDS = tuple(STAGES)


def _kind(value: Any) -> str:
    kind = value.get("kind", STAGE_KINDS[0]) if isinstance(value, dict) else value.kind
    return kind if kind in STAGES else STAGE_KINDS[0]


AnyStage = Annotated[Union[tuple(Annotated[stage, Tag(kind)] for kind, stage in STAGES.items())], Discriminator(_kind)]  # noqa: UP007

if TYPE_CHECKING:
    from zerodr.config.stages import TrainedSettings
else:
    _chain = stages.TrainedSettings.model_fields["chain"]
    TrainedSettings = create_model(
        "TrainedSettings",
        __base__=extended(stages.TrainedSettings),
        __doc__=stages.TrainedSettings.__doc__,
        __module__=__name__,
        chain=(dict[str, AnyStage], Field(min_length=1, description=_chain.description)),
    )

__all__ = ["PAPERS", "STAGES", "STAGE_KINDS", "AnyStage", "TrainedSettings"]
