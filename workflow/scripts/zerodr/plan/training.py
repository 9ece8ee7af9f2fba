"""Inputs and settings of the stages that mine, train and export. Part of `Plan`."""

from __future__ import annotations

from typing import Any

from zerodr.config.bench import Bench
from zerodr.config.load import files_of_model
from zerodr.config.methods import LexicalSettings, TeacherMethod, TrainedMethod
from zerodr.config.recipes import INIT
from zerodr.config.training import TeacherSettings
from zerodr.plan import paths
from zerodr.plan.chains import SCOPE, Chains, Link

TEACHER, SCRATCH = "teacher", "scratch"


class TrainingStages:
    """What the rules of workflow/rules/training.smk ask for."""

    bench: Bench
    chains: Chains

    # ---- inputs ------------------------------------------------------------------------------------------------
    def init_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `init_model`: another recipe's model, texts for a tokenizer, or the files of a local folder."""
        own, method = self.chains.trained(wc.model).encoder, wc.model
        parent = self.chains.parent_of(own.init)
        if parent is not None:
            return {"parent": self.chains.model(parent)}
        if own.init == SCRATCH:
            source = {"source": paths.collection(self.chains.source_of(method))}
            return source if own.tokenizer == "train" else {"files": files_of_model(own.tokenizer)}
        return {"files": files_of_model(own.init)}

    def mining_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `mine_negatives`: the source, a ranking to take negatives from, the stage before's."""
        if self._is_teacher(wc.model):
            settings, source = self._teacher(wc.model), self._teacher_source(wc.model)
            return self._mined_from(source, settings.negatives.source, settings.source_split, settings.negatives.depth)
        link, source = Link(wc.model, wc.stage), self.chains.source_of(wc.model)
        ranked_by, before = self.chains.negatives_from(link), self.chains.mined_before(link)
        split, depth = self.chains.trained(wc.model).source_split, self.chains.stage(link).negatives.depth
        inputs = self._mined_from(source, ranked_by, split, depth)
        return inputs | ({"previous": paths.mined(before.method, SCOPE, before.stage)} if before else {})

    @staticmethod
    def _mined_from(source: str, ranked_by: str | None, split: str, depth: int) -> dict[str, Any]:
        ranking = {"candidates": paths.candidates(ranked_by, SCOPE, source, split, depth)} if ranked_by else {}
        return {"source": paths.collection(source)} | ranking

    def finetune_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `finetune`: parent model, mined queries, source, and scores where the objective distils."""
        link = Link(wc.model, wc.stage)
        mined = self.chains.mined(link)
        inputs = {
            "model": self.chains.model(self.chains.parent(link)),
            "mined": paths.mined(mined.method, SCOPE, mined.stage),
            "source": paths.collection(self.chains.source_of(wc.model)),
        }
        if self.chains.stage(link).teacher is not None:
            scored = self.chains.scored(link)
            inputs["scored"] = paths.scored(scored.method, SCOPE, scored.stage)
        if self.chains.stage(link).clusters is not None:
            clustered = self.chains.clustered(link)
            inputs["clusters"] = paths.clusters(clustered.method, SCOPE, clustered.stage)
        if self.chains.stage(link).units is not None:
            cut, labelled = self.chains.segmented(link), self.chains.labelled(link)
            inputs |= {"units": paths.units(cut.method, SCOPE, cut.stage, "cut"),
                       "labels": paths.units(labelled.method, SCOPE, labelled.stage, "labels")}  # fmt: skip
        return inputs

    def parent_model(self, wc: Any) -> str:
        """Manifest of the model that a stage starts from."""
        return self.chains.model(self.chains.parent(Link(wc.model, wc.stage)))

    def pretrain_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `pretrain`: parent model, and spans of corpora or whole corpora."""
        link, corpora = Link(wc.model, wc.stage), self.chains.corpora(Link(wc.model, wc.stage))
        inputs: dict[str, Any] = {"model": self.chains.model(self.chains.parent(link))}
        if self.chains.pretraining(link).cut is None:
            return inputs | {"collections": [paths.collection(name) for name in corpora]}
        cut = self.chains.cut(link)
        return inputs | {"spans": [paths.spans(cut.method, SCOPE, cut.stage, name) for name in corpora]}

    def cluster_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `cluster_queries`: the parent's embeddings of the training queries, and the source."""
        link, settings = Link(wc.model, wc.stage), self.chains.trained(wc.model)
        source, part = self.chains.source_of(wc.model), f"queries.{settings.source_split}"
        parent = self.chains.parent(link).name
        return {"queries": paths.embeddings(parent, SCOPE, source, settings.protocol, part),
                "collection": paths.collection(source)}  # fmt: skip

    def scoring_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `score_pairs`: teacher, mined queries, source."""
        link = Link(wc.model, wc.stage)
        mined, teacher = self.chains.mined(link), self.chains.stage(link).teacher
        assert teacher is not None, "only distilling stages have scores"
        return {
            TEACHER: paths.model(teacher, SCOPE, self.teacher_stage(teacher)),
            "mined": paths.mined(mined.method, SCOPE, mined.stage),
            "source": paths.collection(self.chains.source_of(wc.model)),
        }

    def teacher_start(self, wc: Any) -> dict[str, Any]:
        """Inputs of `init_teacher`: another recipe's model, or the files of a local folder."""
        init = self._teacher(wc.model).init
        parent = self.chains.parent_of(init)
        return {"parent": self.chains.model(parent)} if parent is not None else {"files": files_of_model(init)}

    def teacher_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `train_teacher`."""
        return {
            "teacher": paths.model(wc.model, SCOPE, INIT),
            "mined": paths.mined(wc.model, SCOPE, TEACHER),
            "source": paths.collection(self._teacher_source(wc.model)),
        }

    def teacher_stage(self, name: str) -> str:
        """The finished stage of a teacher: `teacher`, or `init` where it comes trained."""
        return INIT if self._teacher(name).training is None else TEACHER

    def model_of(self, name: str) -> str:
        """Manifest of the model that a row's embeddings are made with."""
        if isinstance(self.bench.methods[name], TrainedMethod):
            return self.chains.model(self.chains.link(name))
        return paths.model(name, SCOPE, "imported")

    # ---- settings ----------------------------------------------------------------------------------------------
    def _init_model(self, wc: Any) -> dict:
        encoder = self.chains.encoder(wc.model)
        unused = set() if encoder.init == SCRATCH else {"architecture", "tokenizer"}
        return encoder.model_dump(mode="json", exclude=unused)

    def _init_teacher(self, wc: Any) -> dict:
        settings = self._teacher(wc.model)
        kept = settings.model_dump(mode="json", include={"init", "revision", "layers", "max_tokens"})
        return kept | {"trained": settings.training is None}

    def _train_teacher(self, wc: Any) -> dict:
        settings = self._teacher(wc.model)
        return settings.model_dump(mode="json", include={"training", "negatives_per_query", "source_split"}) | {
            "title_join": self._title_join(self._teacher_source(wc.model), settings.protocol),
            "gpus": self.gpus_of_training,
        }

    def _mine_negatives(self, wc: Any) -> dict:
        if self._is_teacher(wc.model):
            settings = self._teacher(wc.model)
            negatives, split, stage, index = settings.negatives, settings.source_split, TEACHER, 0
            dev = settings.training.dev_queries if settings.training else 0
        else:
            chain = self.chains.trained(wc.model)
            own = self.chains.stage(Link(wc.model, wc.stage))
            negatives, dev = own.negatives, own.training.dev_queries
            split, stage, index = chain.source_split, wc.stage, list(chain.chain).index(wc.stage)
        return {"negatives": negatives.model_dump(mode="json"), "split": split, "stage": stage,
                "stage_index": index, "dev_queries": dev}  # fmt: skip

    def _cut_spans(self, wc: Any) -> dict:
        cut = self.chains.pretraining(Link(wc.model, wc.stage)).cut
        assert cut is not None, "only stages that learn from spans cut documents"
        return cut.model_dump(mode="json")

    def _pretrain(self, wc: Any) -> dict:
        link = Link(wc.model, wc.stage)
        stage, protocol = self.chains.pretraining(link), self.chains.trained(wc.model).protocol
        return self.chains.schedule(link) | {
            "objective": stage.objective.model_dump(mode="json"),
            "training": stage.training.model_dump(mode="json"),
            "title_join": self._title_join(self.chains.source_of(wc.model), protocol),
            "gpus": self.gpus_of_training,
        }

    def _cluster_queries(self, wc: Any) -> dict:
        settings = self.chains.trained(wc.model)
        clusters = self.chains.stage(Link(wc.model, wc.stage)).clusters
        assert clusters is not None, "only stages with groups have clusters"
        return clusters.model_dump(mode="json") | {"split": settings.source_split}

    def _score_pairs(self, wc: Any) -> dict:
        settings = self.chains.trained(wc.model)
        teacher = self.chains.stage(Link(wc.model, wc.stage)).teacher
        assert teacher is not None, "only distilling stages have scores"
        how = self._teacher(teacher).model_dump(mode="json", include={"precision", "batch_pairs"})
        return how | {"title_join": self._title_join(self.chains.source_of(wc.model), settings.protocol)}

    def _finetune(self, wc: Any) -> dict:
        link, settings = Link(wc.model, wc.stage), self.chains.trained(wc.model)
        stage = self.chains.stage(link)
        extra = {"groups": stage.groups.model_dump(mode="json")} if stage.groups is not None else {}
        extra |= {"berm": stage.berm.model_dump(mode="json")} if stage.berm is not None else {}
        return (
            self.chains.schedule(link)
            | extra
            | {
                "save_optimizer": self.chains.keeps_moments(link),
                "objective": stage.objective.model_dump(mode="json"),
                "training": stage.training.model_dump(mode="json"),
                "source_split": settings.source_split,
                "title_join": self._title_join(self.chains.source_of(wc.model), settings.protocol),
                "gpus": self.gpus_of_training,
            }
        )

    def _take_step(self, wc: Any) -> dict:
        return {"step": int(wc.step)}

    def _export_model(self, wc: Any) -> dict:
        source = self.chains.source_of(wc.model)
        return {"model": wc.model, "scope": wc.scope, "licences": {source: self.bench.collections[source].licence}}

    def _rank_bm25(self, wc: Any) -> dict:
        settings = self.bench.settings(wc.model, LexicalSettings)
        return {"collection": wc.collection, "split": wc.split, "depth": int(wc.depth), "k1": settings.k1,
                "b": settings.b}  # fmt: skip

    def _merge_candidates(self, wc: Any) -> dict:
        return {"collection": wc.collection, "split": wc.split, "depth": int(wc.depth)}

    @property
    def gpus_of_training(self) -> int:
        """GPUs of one training."""
        own = self.bench.config.gpus
        return self.bench.scale.gpus if own is None else own

    def _title_join(self, collection: str, protocol: str) -> str | None:
        joins = self.bench.protocols[protocol].title_join == "registry"
        return self.bench.collections[collection].title_join if joins else None

    def _is_teacher(self, name: str) -> bool:
        return isinstance(self.bench.methods[name], TeacherMethod)

    def _teacher(self, name: str) -> TeacherSettings:
        return self.bench.settings(name, TeacherSettings)

    def _teacher_source(self, name: str) -> str:
        return self._teacher(name).source or self.bench.config.source or self.bench.scale.source
