"""Inputs and settings of the stages of an episode with memories, and of what it tells. Part of `Plan`."""

from __future__ import annotations

from typing import Any

from zerodr.config.training import ObjectiveSettings, TrainingSettings
from zerodr.papers.moma.settings import AugmenterStage, MemoryStage
from zerodr.plan import paths
from zerodr.plan.lines import Link
from zerodr.plan.memories import LEARNING, SEARCH, MemoryStages, link_of, link_words


class EpisodeStages(MemoryStages):
    """What the rules of workflow/rules/episodes.smk ask for, and `measure_shares`."""

    def main_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `train_main`."""
        link = self.chains.made(link_of(wc))
        mined, source = self.chains.mined(link), self.chains.source_of(link.method)
        return {
            "model": self.chains.model(self.chains.parent(link)),
            "mined": paths.mined(mined.method, mined.scope, mined.stage),
            "source": paths.collection(source),
        } | self._read(link, LEARNING, source, self.chains.trained(link.method).source_split)

    def attention_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `measure_attention`: of training queries, those that were mined."""
        link = link_of(wc)
        inputs = {"collection": paths.collection(wc.collection)} | self._read(link, wc.use, wc.collection, wc.split)
        if wc.use == LEARNING:
            mined = self.chains.mined(link)
            return inputs | {
                "model": paths.component(*link_words(link), "main"),
                "mined": paths.mined(mined.method, mined.scope, mined.stage),
            }
        return inputs | {"model": self.chains.model(self.chains.link(link.name, link.scope))}

    def learned_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `mine_memories`."""
        link = link_of(wc)
        source, split = self.chains.source_of(link.method), self.chains.trained(link.method).source_split
        return {
            "attention": paths.attention(*link_words(link), LEARNING, source, split),
            "source": paths.collection(source),
        } | self._read(link, LEARNING, source, split)

    def augmenter_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `train_augmenter`."""
        link = self.chains.made(link_of(wc))
        return {"model": self.chains.model(self.chains.parent(link)), "learned": paths.learned(*link_words(link))}

    def joining_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `join_components`."""
        link = self.chains.made(link_of(wc))
        mode, main = self._episode(link).augmenter.mode, paths.component(*link_words(link), "main")
        if mode == "learned":
            return {"main": main, "augmenter": paths.component(*link_words(link), "augmenter")}
        return {"main": main} | ({"parent": self.chains.model(self._frozen(link))} if mode == "frozen" else {})

    def _frozen(self, link: Link) -> Link:
        """The model whose augmenter an episode does not train."""
        return self.chains.augmenter_given(link) or self.chains.parent(link)

    def shares_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `measure_shares`."""
        link = link_of(wc)
        names = self.mixture(link, wc.use, wc.collection, wc.split)
        return {
            "attention": paths.attention(*link_words(link), wc.use, wc.collection, wc.split),
            "collection": paths.collection(wc.collection),
            "memories": [paths.collection(name) for name in names],
        }

    def _train_main(self, wc: Any) -> dict:
        link = link_of(wc)
        source, split = self.chains.source_of(link.method), self.chains.trained(link.method).source_split
        names = self.mixture(link, LEARNING, source, split)
        return self._finetune(wc) | {"joins": self._joins(link, names)}

    def _measure_attention(self, wc: Any) -> dict:
        link, asked = link_of(wc), (wc.use, wc.collection, wc.split)
        memory = self._episode(link).memory
        return {
            "split": wc.split,
            "joins": self._joins(link, self.mixture(link, *asked)),
            "documents": self._documents(link, *asked),
            "document_tokens": self._document_tokens(link, *asked),
            "aggregation": memory.aggregation,
            "exclude_positives": memory.exclude_positives and self._is_training(link.method, wc.collection, wc.split),
            "source": wc.collection,
            "precision": self.chains.trained(link.method).precision,
        }

    def _mine_memories(self, wc: Any) -> dict:
        link = link_of(wc)
        stage, source = self._episode(link), self.chains.source_of(link.method)
        split = self.chains.trained(link.method).source_split
        kept = stage.augmenter.model_dump(mode="json", include={"selected", "depth", "count", "exclude_unselected"})
        named = dict.fromkeys([*self.mixture(link, LEARNING, source, split), source])
        return kept | {
            "source": source,
            "split": split,
            "joins": self._joins(link, list(named)),
            "distils": stage.augmenter.distils,
            "stage_index": list(self.chains.trained(link.method).chain).index(link.stage),
        }

    def _train_augmenter(self, wc: Any) -> dict:
        link = link_of(wc)
        stage = self._episode(link)
        objective: ObjectiveSettings = stage.augmenter.objective or stage.objective
        if stage.augmenter.distils:
            objective = objective.model_copy(update={"negatives_per_query": stage.memory.documents})
        trained = {"objective": objective.model_dump(), "training": self._augmenter_training(stage).model_dump()}
        return {
            "settings": AugmenterStage.model_validate(trained).as_params(),
            "schedule": self._augmenter_schedule(link),
            "save_optimizer": self.chains.keeps_moments(link),
            "source_split": self.chains.trained(link.method).source_split,
            "title_join": None,
            "gpus": self.gpus_of_training,
            "parent_learned": self.has_augmenter(self.chains.parent(link)),
        }

    @staticmethod
    def _augmenter_training(stage: MemoryStage) -> TrainingSettings:
        return stage.augmenter.training or stage.training

    def _augmenter_schedule(self, link: Link) -> dict[str, Any]:
        """The main model's schedule, counted in the augmenters' own steps."""
        made, chain = self.chains.schedule(link), self.chains.trained(link.method).chain
        episodes = [name for name in chain if isinstance(chain[name], MemoryStage)]
        steps = {name: self._augmenter_training(self._episode(link._replace(stage=name))).steps for name in episodes}
        at = episodes.index(link.stage)
        first, training = sum(steps[name] for name in episodes[:at]), self._augmenter_training(self._episode(link))
        ends = training.schedule == "linear" and training.schedule_steps is None
        return made | {
            "first_step": first,
            "total_steps": sum(steps.values()) if ends else first + training.steps,
        }

    def _measure_shares(self, wc: Any) -> dict:
        names = self.mixture(link_of(wc), wc.use, wc.collection, wc.split)
        return {
            "collection": wc.collection,
            "split": wc.split,
            "evaluated": wc.use == SEARCH,
            "joins": self._joins(link_of(wc), names),
        }

    def _join_components(self, wc: Any) -> dict:
        return {"parent_learned": self.has_augmenter(self._frozen(link_of(wc)))}
