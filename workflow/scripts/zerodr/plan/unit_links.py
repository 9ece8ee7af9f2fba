"""Under which stage's name the units of a fine-tuning stage stand, and their labels: the first one with the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from zerodr.config.stages import FinetuneStage
from zerodr.papers.berm.settings import UnitSettings
from zerodr.plan import paths
from zerodr.plan.chains import SCOPE, Chains
from zerodr.plan.lines import Link


class UnitLink(NamedTuple):
    """A folder of units.

    Attributes:
        link: the stage under whose name it stands.
        kind: `cut`, `read` or `labels`.
    """

    link: Link
    kind: str

    @property
    def path(self) -> str:
        """Its manifest."""
        return paths.units(self.link.method, self.link.scope, self.link.stage, self.kind)


class UnitLinks:
    """Folders of units that a stage reads.

    Args:
        chains: the chains of stages.
    """

    def __init__(self, chains: Chains) -> None:
        self.chains = chains

    def cut(self, link: Link) -> UnitLink:
        """Units of the positives, of all training queries."""
        return UnitLink(self._first(link, lambda units: units.cut, sampled=False), "cut")

    def read(self, link: Link) -> UnitLink:
        """A reader's scores of the units."""
        return UnitLink(self._first(link, lambda units: [units.cut, units.reader, units.label.aggregation]), "read")

    def labels(self, link: Link) -> UnitLink:
        """Labels of the units."""
        return UnitLink(self._first(link, lambda units: units), "labels")

    def mined(self, link: Link) -> Link | None:
        """The stage whose mined queries are labelled, where they are a sample; None: all of the source."""
        sampled = self.chains.stage(link).negatives.queries is not None
        return self.chains.mined(link) if sampled else None

    def _first(self, link: Link, kept: Callable[[UnitSettings], Any], sampled: bool = True) -> Link:
        """The first stage of the chain, of the first of its family, with the same units of the same queries."""

        def history(at: Link) -> Any:
            settings = self.chains.trained(at.method)
            own = settings.chain.get(at.stage)
            if not isinstance(own, FinetuneStage) or own.units is None:
                return None
            mined = self.mined(at) if sampled else None
            return [
                self.chains.encoder(at.method),
                kept(own.units),
                self.chains.source_of(at.method),
                settings.source_split,
                settings.protocol,
                mined,
            ]

        own, mined = history(link), self.mined(link) if sampled else None
        scope = SCOPE if mined is None else mined.scope
        chain = self.chains.trained(link.method).chain
        alike = next(name for name in chain if history(link._replace(stage=name)) == own)
        return self.chains.first_alike(Link(link.method, alike, scope), history)
