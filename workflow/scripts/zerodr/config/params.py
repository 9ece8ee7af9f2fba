"""Params of the rules that train: a stage's settings as the recipe has them, and what the plan adds."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, model_validator

from zerodr.config.additions import Extensible
from zerodr.config.base import Settings
from zerodr.config.stages import PretrainStage
from zerodr.config.trained import AnyLearningStage
from zerodr.config.training import JoinedTexts

TITLES, SENTENCES = "titles", "sentences"  # kinds of known items


class Workers(Settings):
    """Machine on which a stage trains."""

    gpus: int = Field(0, ge=0)
    """GPUs to train on, those of all nodes together. 0: one if there is one, else the CPU."""
    processes: int = Field(1, ge=1)
    """Processes of each node on the CPU, where `gpus` is 0."""
    nodes: int = Field(1, ge=1)
    """Machines of one Slurm job that train together."""

    @property
    def gpus_of_a_node(self) -> int:
        """GPUs on each machine."""
        return self.gpus // self.nodes

    @property
    def workers_of_a_node(self) -> int:
        """Processes that train on each machine."""
        return self.gpus_of_a_node or self.processes

    @property
    def workers(self) -> int:
        """Processes that train."""
        return self.workers_of_a_node * self.nodes

    @model_validator(mode="after")
    def _equal_shares(self) -> Workers:
        if self.gpus % self.nodes:
            raise ValueError(f"{self.gpus} gpus can't be shared equally by {self.nodes} nodes")
        return self


class Schedule(Settings):
    """The place of a stage in its chain."""

    stage: str
    """Name of the stage, such as `ep0`."""
    stage_index: int = Field(ge=0)
    """Number of the stage, from 0."""
    first_step: int = Field(0, ge=0)
    """Optimiser steps of the chain's earlier stages."""
    total_steps: int = Field(ge=1)
    """Optimiser steps of the whole chain: where a linear schedule ends, unless `schedule_steps` says otherwise."""


class SourceTexts(JoinedTexts):
    """The source's queries, and how its documents become texts."""

    split: str
    """The source's split with training queries."""


class TrainingParams(JoinedTexts, Workers):
    """Params of all rules that train on the texts of collections."""

    schedule: Schedule
    """The place of the stage in its chain."""


class FinetuneParams(TrainingParams, Extensible):
    """Params of rules that train on mined queries."""

    extended_by: ClassVar = "finetune_params"
    encoder: str = "bi_encoder"
    """Type of the model."""
    settings: AnyLearningStage
    """The stage."""
    source_split: str
    """The source's split with training queries."""
    save_optimizer: bool = False
    """Keep the optimiser's moments in the model folder, for a next stage with `keep_optimizer`."""


class PretrainParams(TrainingParams):
    """Params of rule pretrain. `title_join` is for whole documents (`collections`)."""

    settings: PretrainStage
    """The stage."""
    left_out: tuple[str, ...] = ()
    """Gated collections that were asked for and are not available."""


class ExportParams(Extensible):
    """Params of rule export_model."""

    extended_by: ClassVar = "export_params"
    model: str
    """Full name of the method."""
    scope: str
    """`shared`, or the collection that the model was made for."""
    licences: dict[str, str] = {}
    """Licence of each collection that the model was trained on, by name."""


class Candidate(Settings):
    """A method that is compared on a user's folder."""

    name: str
    """Full name."""
    label: str
    """Name in tables."""
    kind: str
    """Kind of the method."""
    adapted: bool
    """It learned from the documents, or reads them with each query."""
    description: str
    """Description of the method, from its file."""
    remark: str
    """Footnote."""
