"""Settings of items about adaptation and modules."""

from typing import ClassVar

from pydantic import Field

from zerodr.config.item import Item, TextItem


class AdaptationItem(Item):
    """A measure over the steps that models were trained on the target's corpus."""

    later: ClassVar = ("measure",)
    lines: dict[str, tuple[str, ...]] = Field(min_length=1)
    """Label -> methods with more and more such steps."""
    references: tuple[str, ...] = ()
    """Methods drawn as level lines."""
    measure: str = "ndcg_cut_10"
    """What is drawn (DDR figure 4: recall_1000)."""


class ParametersItem(TextItem):
    """Numbers of parameters, trained and at inference, counted in the models themselves."""

    methods: tuple[str, ...] = Field(min_length=1)
    """Trained methods."""


class ModuleLossesItem(TextItem):
    """Loss of pretraining stages on texts that they hold out, before and after them."""

    models: tuple[str, ...] = Field(min_length=1)
    """`<method>@<stage>`; a stage that is made for each target is shown for each."""
    measure: str = "late_mlm"
    """Loss that is shown, by its name in the record's `before_and_after`."""


ITEMS: dict[str, type[Item]] = {
    "adaptation": AdaptationItem,
    "parameters": ParametersItem,
    "module_losses": ModuleLossesItem,
}
