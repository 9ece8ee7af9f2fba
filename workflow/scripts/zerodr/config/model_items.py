"""Items of papers that look into models: domains, units, modules, adaptation, memories (MoDIR, BERM, DDR, MoMA)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from zerodr.config.item import Item


class TargetItem(Item):
    """An item about single targets: collections that a column of the main table is the mean of are left out."""


class DomainsItem(TargetItem):
    """Domain-Acc, KNN-Source% and retrieval over the kept steps of adversarial training."""

    kind: Literal["domains"]
    """Which kind of item it is."""
    methods: tuple[str, ...] = Field(min_length=1)
    """Methods with an adversary. Steps are those of its stages: training.save_steps and the last."""


class NearestQueriesItem(TargetItem):
    """Source queries nearest to a target's queries before and after adversarial training."""

    kind: Literal["nearest_queries"]
    """Which kind of item it is."""
    method: str
    """A method with an adversary."""
    examples: int = Field(2, ge=1)
    """Queries of each collection with the largest gains, and as many with the largest losses."""
    neighbours: int = Field(3, ge=1, le=5)
    """Source queries for each."""

    @property
    def is_drawn(self) -> bool:
        """Texts are no figure."""
        return False


class ProjectionsItem(TargetItem):
    """Source and target in the plane, by t-SNE of each model's vectors."""

    kind: Literal["projections"]
    """Which kind of item it is."""
    methods: tuple[str, ...] = Field(min_length=1)
    """Trained methods. One with an adversary is shown at each of its kept steps, with `steps`."""
    steps: bool = False
    """Show the start and every kept step of adversarial training, too."""


class UnitsItem(Item):
    """Balance, extractability and dispersion of models over the units of passages."""

    kind: Literal["units"]
    """Which kind of item it is."""
    units_of: str
    """The method whose units and labels are taken."""
    methods: tuple[str, ...] = Field(min_length=1)
    """Trained methods of the same tokens."""
    measures: tuple[str, ...] = Field(min_length=1)
    """Columns: measures of rule measure_units."""


class AdaptationItem(Item):
    """A measure over the steps that models were trained on the target's corpus."""

    kind: Literal["adaptation"]
    """Which kind of item it is."""
    lines: dict[str, tuple[str, ...]] = Field(min_length=1)
    """Label -> methods with more and more such steps."""
    references: tuple[str, ...] = ()
    """Methods drawn as level lines."""


class ParametersItem(Item):
    """Numbers of parameters, trained and at inference, counted in the models themselves."""

    kind: Literal["parameters"]
    """Which kind of item it is."""
    methods: tuple[str, ...] = Field(min_length=1)
    """Trained methods."""

    @property
    def is_drawn(self) -> bool:
        """Counts are no figure."""
        return False


class SharesItem(TargetItem):
    """Each memory's share of documents and of attention after each episode: training queries, and the targets'."""

    kind: Literal["shares"]
    """Which kind of item it is."""
    method: str
    """A method with memories."""


class ComponentsItem(TargetItem):
    """MRR@10 of the main model and of the augmenter on held-out source queries, by episode."""

    kind: Literal["components"]
    """Which kind of item it is."""
    methods: tuple[str, ...] = Field(min_length=1)
    """Methods with memories."""
