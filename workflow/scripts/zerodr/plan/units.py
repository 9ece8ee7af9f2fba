"""Inputs and settings of the stages that cut, read and label units, and of readers. Part of `Plan`."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from zerodr.config.bench import Bench
from zerodr.config.load import files_of_model
from zerodr.config.recipes import INIT
from zerodr.config.stages import FinetuneStage
from zerodr.errors import ConfigError
from zerodr.papers.berm.settings import ReaderSettings, UnitSettings
from zerodr.plan import paths
from zerodr.plan.chains import SCOPE, Chains, Link
from zerodr.plan.unit_links import UnitLinks

READER, INDEX = "reader", "bm25s-flat"
MEASURED_PAIRS = 10000
NOTHING = r"(?!)"


class UnitStages:
    """What the rules of workflow/rules/units.smk ask for."""

    bench: Bench
    chains: Chains

    # ---- inputs ------------------------------------------------------------------------------------------------
    def unit_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `segment_units`: the source, and the initial model, whose tokens count."""
        initial = self.chains.link(f"{wc.model}@{INIT}")
        return {"source": paths.collection(self.chains.source_of(wc.model)), "model": self.chains.model(initial)}

    def label_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `label_units`: units, the source with its inverted index, a reader's scores where there is one."""
        link, source, links = self._labelled(wc), self.chains.source_of(wc.model), UnitLinks(self.chains)
        inputs = {
            "source": paths.collection(source),
            "units": links.cut(link).path,
            "index": paths.bm25_index(INDEX, source),
        }
        inputs |= self._sampled(link)
        if self._units_of(wc).reader is not None:
            inputs["read"] = links.read(link).path
        return inputs

    def reading_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `read_units`: reader, units, source."""
        link, reader = self._labelled(wc), self._units_of(wc).reader
        assert reader is not None, "only units with a reader are read"
        return {
            "reader": paths.model(reader, SCOPE, self.reader_stage(reader)),
            "units": UnitLinks(self.chains).cut(link).path,
            "source": paths.collection(self.chains.source_of(wc.model)),
            **self._sampled(link),
        }

    @staticmethod
    def _labelled(wc: Any) -> Link:
        return Link(wc.model, wc.stage, wc.scope)

    def _sampled(self, link: Link) -> dict[str, str]:
        """The mined queries, where they are a sample: others need no label."""
        mined = UnitLinks(self.chains).mined(link)
        return {} if mined is None else {"mined": paths.mined(mined.method, mined.scope, mined.stage)}

    def measuring_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `measure_units`: any trained model, and the units and labels of the last stage of `units_of`.

        Raises:
            ConfigError: the model reads documents of another length, so the units are not of its tokens.
        """
        link, model, links = self.chains.link(wc.units_of), self.chains.link(wc.model), UnitLinks(self.chains)
        cut, read = (self.chains.encoder(own.method).document_tokens for own in (link, model))
        if cut != read:
            raise ConfigError(
                f"units of {wc.units_of}",
                f"are cut for documents of {cut} tokens, {wc.model} reads {read}",
                "measure it over the units of a method of its own length",
            )
        return {
            "model": self.chains.model(model),
            "source": paths.collection(self.chains.source_of(wc.units_of)),
            "units": links.cut(link).path,
            "labels": links.labels(link).path,
        }

    def pattern_of_units(self) -> str:
        """A wildcard constraint that matches trained methods whose last stage has units."""
        shared = [name for name in self.chains.names() if not self.chains.is_adapted(name)]
        names = [name for name in shared if self._has_units(self.chains.link(name))]
        return "|".join(re.escape(name) for name in sorted(names)) or NOTHING

    def _has_units(self, link: Link) -> bool:
        stage = None if link.stage == INIT else self.chains.any_stage(link)
        return isinstance(stage, FinetuneStage) and stage.units is not None

    def reader_start(self, wc: Any) -> dict[str, Any]:
        """Inputs of `init_reader`: another recipe's model, or the files of a local folder."""
        init = self._reader(wc.model).init
        parent = self.chains.parent_of(init)
        return {"parent": self.chains.model(parent)} if parent is not None else {"files": files_of_model(init)}

    def reader_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `train_reader`."""
        return {"reader": paths.model(wc.model, SCOPE, INIT), "source": paths.collection(self._reader(wc.model).source)}

    def reader_stage(self, name: str) -> str:
        """The finished stage of a reader: `reader`, or `init` where it comes trained."""
        return INIT if self._reader(name).training is None else READER

    # ---- settings ----------------------------------------------------------------------------------------------
    def _segment_units(self, wc: Any) -> dict:
        return {"cut": self._units_of(wc).cut.model_dump(mode="json")} | self._pairs_of_training(wc)

    def _label_units(self, wc: Any) -> dict:
        return {"label": self._units_of(wc).label.model_dump(mode="json")} | self._pairs_of_training(wc)

    def _read_units(self, wc: Any) -> dict:
        units = self._units_of(wc)
        assert units.reader is not None, "only units with a reader are read"
        how = self._reader(units.reader).model_dump(mode="json", include={"precision", "batch_pairs"})
        return how | {"aggregation": units.label.aggregation} | self._pairs_of_training(wc)

    def _measure_units(self, wc: Any) -> dict:
        return {
            "pairs": MEASURED_PAIRS,
            "title_join": self._pairs_of_training(SimpleNamespace(model=wc.units_of))["title_join"],
        }

    def _init_reader(self, wc: Any) -> dict:
        settings = self._reader(wc.model)
        kept = settings.model_dump(mode="json", include={"init", "revision", "layers", "max_tokens", "answer_tokens"})
        return kept | {"trained": settings.training is None}

    def _train_reader(self, wc: Any) -> dict:
        settings = self._reader(wc.model)
        title_join = self._title_join(settings.source, settings.protocol)  # type: ignore[attr-defined]
        return settings.model_dump(mode="json", include={"training", "source_split", "dev_split"}) | {
            "title_join": title_join,
            "gpus": self.gpus_of_training,
        }  # type: ignore[attr-defined]

    def _pairs_of_training(self, wc: Any) -> dict:
        settings, source = self.chains.trained(wc.model), self.chains.source_of(wc.model)
        title_join = self._title_join(source, settings.protocol)  # type: ignore[attr-defined]
        return {"split": settings.source_split, "title_join": title_join}

    def _units_of(self, wc: Any) -> UnitSettings:
        units = self.chains.stage(Link(wc.model, wc.stage)).units
        assert units is not None, f"{wc.model}@{wc.stage} has no units"
        return units

    def _reader(self, name: str) -> ReaderSettings:
        return self.bench.settings(name, ReaderSettings)
