"""Inputs and settings of the stages that mine, train and export. Part of `Plan`."""

from __future__ import annotations

from typing import Any

from zerodr.config.bench import Bench
from zerodr.config.load import files_of_model
from zerodr.config.methods import LexicalSettings, TeacherMethod, TrainedMethod
from zerodr.config.recipes import INIT
from zerodr.config.stages import LearningStage
from zerodr.config.training import TeacherSettings
from zerodr.errors import ConfigError
from zerodr.plan import paths
from zerodr.plan.chains import SCOPE, Chains, Link
from zerodr.plan.unit_links import UnitLinks

TEACHER, SCRATCH = "teacher", "scratch"


class TrainingStages:
    """What the rules of workflow/rules/training.smk ask for."""

    bench: Bench
    chains: Chains

    # ---- inputs ------------------------------------------------------------------------------------------------
    def init_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `init_model`: another recipe's model, texts for a tokenizer, or the files of a local folder."""
        own, method = self.chains.trained(wc.model).encoder, wc.model
        parent = self.chains.parent_of(own.init, self._link(wc, INIT).scope)
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
            ranked = (settings.negatives.source, SCOPE)
            return self._mined_from(source, ranked, settings.source_split, settings.negatives.depth)
        link, source = Link(wc.model, wc.stage, wc.scope), self.chains.source_of(wc.model)
        ranked_by, before = self.chains.negatives_from(link), self.chains.mined_before(link)
        split, depth = self.chains.trained(wc.model).source_split, self.chains.stage(link).negatives.depth
        inputs = self._mined_from(source, ranked_by, split, depth)
        return inputs | ({"previous": paths.mined(before.method, before.scope, before.stage)} if before else {})

    @staticmethod
    def _mined_from(source: str, ranked_by: tuple[str, str] | None, split: str, depth: int) -> dict[str, Any]:
        ranking = {"candidates": paths.candidates(*ranked_by, source, split, depth)} if ranked_by else {}
        return {"source": paths.collection(source)} | ranking

    def finetune_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `finetune`: parent model, mined queries, source, and scores where the objective distils."""
        link = self._link(wc, wc.stage)
        mined, rem = self.chains.mined(link), self.chains.stage(link).rem
        inputs: dict[str, Any] = {
            "model": self.chains.model(self.chains.domain(link) if rem is not None else self.chains.parent(link)),
            "mined": paths.mined(mined.method, mined.scope, mined.stage),
            "source": paths.collection(self.chains.source_of(wc.model)),
        }
        if rem is not None and rem.go_on:
            inputs["rem"] = self.chains.model(self.chains.parent(link))
        if self.chains.stage(link).teacher is not None:
            scored = self.chains.scored(link)
            inputs["scored"] = paths.scored(scored.method, scored.scope, scored.stage)
        if self.chains.stage(link).clusters is not None:
            clustered = self.chains.clustered(link)
            inputs["clusters"] = paths.clusters(clustered.method, clustered.scope, clustered.stage)
        if self.chains.stage(link).adversary is not None:
            inputs["targets"] = [paths.collection(name) for name in self.chains.members(link.scope)]
        if self.chains.stage(link).units is not None:
            links = UnitLinks(self.chains)
            inputs |= {"units": links.cut(link).path, "labels": links.labels(link).path}
        return inputs

    def _link(self, wc: Any, stage: str) -> Link:
        """The model that a rule's wildcards name, which must be one that is made."""
        return self.chains.made(Link(wc.model, stage, wc.scope))

    def parent_model(self, wc: Any) -> str:
        """Manifest of the model that a stage starts from."""
        return self.chains.model(self.chains.parent(Link(wc.model, wc.stage, wc.scope)))

    def pretrain_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `pretrain`: parent model, and spans of corpora or whole corpora."""
        link = self._link(wc, wc.stage)
        corpora = self.chains.corpora(link)
        inputs: dict[str, Any] = {"model": self.chains.model(self.chains.parent(link))}
        if self.chains.pretraining(link).cut is None:
            return inputs | {"collections": [paths.collection(name) for name in corpora]}
        cut = self.chains.cut(link)
        return inputs | {"spans": [paths.spans(cut.method, cut.scope, cut.stage, name) for name in corpora]}

    def assemble_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `assemble`: domain and relevance module."""
        link = self._link(wc, wc.stage)
        return {
            "dam": self.chains.model(self.chains.assembled(link)),
            "rem": self.chains.model(self.chains.parent(link)),
        }

    def cluster_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `cluster_queries`: the parent's embeddings of the training queries, and the source."""
        link, settings = Link(wc.model, wc.stage, wc.scope), self.chains.trained(wc.model)
        source, part = self.chains.source_of(wc.model), f"queries.{settings.source_split}"
        parent = self.chains.parent(link)
        return {
            "queries": paths.embeddings(parent.name, parent.scope, source, settings.protocol, part),
            "collection": paths.collection(source),
        }

    def scoring_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `score_pairs`: teacher, mined queries, source."""
        link = Link(wc.model, wc.stage, wc.scope)
        mined, teacher = self.chains.mined(link), self.chains.stage(link).teacher
        assert teacher is not None, "only distilling stages have scores"
        return {
            TEACHER: paths.model(teacher, SCOPE, self.teacher_stage(teacher)),
            "mined": paths.mined(mined.method, mined.scope, mined.stage),
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

    def model_of(self, name: str, scope: str = SCOPE) -> str:
        """Manifest of the model that a row's embeddings in a scope are made with.

        Raises:
            ConfigError: there is no model in this scope.
        """
        if isinstance(self.bench.methods[name], TrainedMethod):
            link = self.chains.link(name, scope)
            return self.chains.model(self.chains.made(link._replace(scope=scope)))
        return paths.model(name, scope, "imported")

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
        assert settings.training is not None, "only teachers of ours are trained"
        stage = LearningStage(objective=settings.objective, training=settings.training)
        return {
            "settings": stage.as_params(),
            "schedule": {"stage": TEACHER, "stage_index": 0, "first_step": 0, "total_steps": settings.training.steps},
            "source_split": settings.source_split,
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
        return {
            "negatives": negatives.model_dump(mode="json"),
            "split": split,
            "stage": stage,
            "stage_index": index,
            "dev_queries": dev,
        }

    def _cut_spans(self, wc: Any) -> dict:
        cut = self.chains.pretraining(Link(wc.model, wc.stage)).cut
        assert cut is not None, "only stages that learn from spans cut documents"
        return cut.model_dump(mode="json")

    def _pretrain(self, wc: Any) -> dict:
        link = Link(wc.model, wc.stage)
        stage, protocol = self.chains.pretraining(link), self.chains.trained(wc.model).protocol
        return {
            "settings": stage.as_params(),
            "schedule": self.chains.schedule(link),
            "title_join": self._title_join(self.chains.source_of(wc.model), protocol),
            "left_out": self.chains.left_out(link),
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
        link, settings = Link(wc.model, wc.stage, wc.scope), self.chains.trained(wc.model)
        stage = self.chains.stage(link)
        return self._adversary(link) | {
            "settings": stage.as_params(),
            "schedule": self.chains.schedule(link),
            "save_optimizer": self.chains.keeps_moments(link),
            "source_split": settings.source_split,
            "title_join": self._title_join(self.chains.source_of(wc.model), settings.protocol),
            "gpus": self.gpus_of_training,
        }

    def _adversary(self, link: Link) -> dict:
        """What adapts a stage to the target of its scope; nothing for other stages."""
        adversary, protocol = self.chains.stage(link).adversary, self.chains.trained(link.method).protocol
        if adversary is None:
            return {}
        targets = {
            name: {
                "split": self._target_split(name, adversary.queries),
                "title_join": self._title_join(name, protocol),
            }
            for name in self.chains.members(link.scope)
        }
        return {
            "targets": targets,
            "continue_classifier": self.chains.continues_classifier(link),
        }

    def _target_split(self, name: str, queries: str) -> str | None:
        """The split of a target's collection whose queries are taken."""
        row = self.bench.collections[name]
        split = {"test": row.evaluation_split, "train": "train"}.get(queries)
        if split is not None and split not in row.splits:
            raise ConfigError(
                f"target {name}",
                f"has no {queries} queries",
                "take the variant +inductive, which learns from documents alone, or set "
                "adversary.queries to another of test, train, unlabelled, none",
            )
        return split

    def domain_inputs(self, wc: Any) -> dict[str, Any]:
        """Inputs of `measure_domains`: the model that ranks the target, its source, the target's collections."""
        names = self.chains.members(wc.target)
        method = wc.model.partition("@")[0]
        return {
            "model": self.chains.model(self.chains.ranker(wc.model, names[0])),
            "source": paths.collection(self.chains.source_of(method)),
            "targets": [paths.collection(name) for name in names],
        }

    def _measure_domains(self, wc: Any) -> dict:
        method = wc.model.partition("@")[0]
        settings, source = self.chains.trained(method), self.chains.source_of(method)
        told = self.bench.collections[source].evaluation_split or settings.source_split
        return {
            "source": {"split": told, "title_join": self._title_join(source, settings.protocol)},
            "targets": {
                name: {
                    "split": self._target_split(name, "test"),
                    "title_join": self._title_join(name, settings.protocol),
                }
                for name in self.chains.members(wc.target)
            },
        }

    def _project_domains(self, wc: Any) -> dict:
        return self._measure_domains(wc)

    def remark_of(self, name: str) -> str:
        """A method's footnote, with what follows from how it was trained."""
        remarks = self.remarks_of(name)
        if isinstance(self.bench.methods[name], TrainedMethod) and self.chains.is_adapted(name):
            source = self.bench.collections[self.chains.source_of(name.partition("@")[0])]
            shared = self.chains.ranker(name, source.name).name
            remarks.append(f"no model is adapted to the source: {source.name} is ranked by {shared}")
        return "; ".join(remarks)

    def remarks_of(self, name: str) -> list[str]:
        """What must be known of a method on its targets, one by one."""
        method = self.bench.methods[name]
        remarks = [method.remark, self.remark_of_memories(name)]
        if isinstance(method, TrainedMethod) and self.chains.is_adapted(name):
            remarks.append("one model for each target")
            sees = self.chains.sees_queries(name)
            if "test" in sees:
                remarks.append("transductive: learns from the queries that it is evaluated with, without their labels")
        return [remark for remark in remarks if remark]

    def _assemble(self, wc: Any) -> dict:
        stage = self.chains.assembly(Link(wc.model, wc.stage, wc.scope))
        return stage.model_dump(mode="json", include={"fold", "keep_modular", "sharpness"})

    def remark_of_memories(self, name: str) -> str:
        """Which memories augment the queries of a row; empty for rows with plain queries."""
        raise NotImplementedError

    def _take_step(self, wc: Any) -> dict:
        return {"step": int(wc.step)}

    def _export_model(self, wc: Any) -> dict:
        learned = [self.chains.source_of(wc.model), *self.chains.members(wc.scope)]
        licences = {name: self.bench.collections[name].licence for name in learned}
        return {"model": wc.model, "scope": wc.scope, "licences": licences}

    def _rank_bm25(self, wc: Any) -> dict:
        settings = self.bench.settings(wc.model, LexicalSettings)
        return {
            "collection": wc.collection,
            "split": wc.split,
            "depth": int(wc.depth),
            "k1": settings.k1,
            "b": settings.b,
        }

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
