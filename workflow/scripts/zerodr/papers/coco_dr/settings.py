"""Settings of query groups: how training queries are clustered, and how their losses are weighted (COCO-DR)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from zerodr.config.additions import StageKeys
from zerodr.config.base import Settings
from zerodr.config.stages import PaperSettings
from zerodr.config.training import ObjectiveSettings, TrainingSettings

Mode = Literal["idro", "official", "balanced", "alpha", "erm", "group_dro"]
EngineName = Literal["segment", "jvp"]
PER_QUERY = ("pairwise_nll", "info_nce")
OFFICIAL_FLOOR = 0.01  # least weight of a group in mode official


class ClusterSettings(Settings):
    """Clusters of a source's training queries: by k-means, or given."""

    later: ClassVar = ("file", "given")
    file: str | None = None
    """A table of tab-separated values with columns `query` (id) and `group` (any name), which has every training query:
    groups that are known. The other keys are of k-means, which they replace."""
    given: bool = False
    """Groups that the source comes with: the collections of a mixture, the ciphered articles and the others."""
    count: int = Field(50, ge=2)
    """K, clusters."""
    metric: Literal["l2", "cosine"] = "l2"
    """`l2` as the released code; `cosine` clusters directions."""
    iterations: int = Field(500, ge=1)
    """Lloyd iterations of each restart."""
    restarts: int = Field(5, ge=1)
    """Runs from other starts, of which the best is kept."""
    sample: int | None = Field(None, ge=1)
    """Training points for each centroid (a seeded sample; 256 in the released code). None: all queries."""

    @model_validator(mode="before")
    @classmethod
    def _given(cls, value: Any) -> Any:
        """Leave k-means out where groups are given: a recipe or a scale below may have set it."""
        given = isinstance(value, dict) and (value.get("file") is not None or value.get("given"))
        k_means = ClusterSettings.model_fields.keys() - {"file", "given"}
        return {key: one for key, one in value.items() if key not in k_means} if given else value


class GroupSettings(Settings):
    """Weights of the losses of query groups (COCO-DR section 4.2)."""

    later: ClassVar = ("effective", "devices")
    retired: ClassVar = {
        **dict.fromkeys(("eps", "absent")),
        **{"outer_alpha": True, "update_every": 1, "share": 0.25, "running": 0.1},
    }
    mode: Mode = "idro"
    """`idro`: the weights of eq. 11, with kappa. `official`: as released. Controls: `balanced` (mean of group means),
    `alpha` (eq. 6 alone, so all of iDRO but gradients), `erm` (plain mean), `group_dro` (Sagawa et al.)."""
    beta: float = Field(0.25, ge=0)
    """idro, official, alpha: exponent on group losses."""
    kappa: float = Field(0.1, ge=0, le=1)
    """idro: exponent on a group's weight before. 0.1 as released: a step counts for 1 / 0.9 steps in all. 1 as
    published: steps add up, nothing pulls back to equal weights, and few groups may end with all of it."""
    temperature: float = Field(1000.0, gt=0)
    """idro: divides similarities. Raw inner products scale with the squared gradient norm."""
    effective: float | None = Field(None, gt=0, lt=1)
    """idro: in place of a temperature, the share of clusters that weights are those of at the episode's end,
    exp(entropy) / K. The temperature of a step follows from the similarities added up so far and from the steps left,
    so it does not depend on the length of gradients."""
    devices: int = Field(1, ge=1)
    """official: GPUs of the released run. A batch is cut into as many parts, in its order, whatever the number of
    processes here; each part has its own losses, present clusters and weights, and gradients are added up over all."""
    rho: float = Field(0.05, gt=0)
    """official: factor on mean similarities."""
    ema: float = Field(0.1, ge=0, le=1)
    """official: exponent on a group's weight before."""
    similarity: Literal["dot", "cosine"] = "cosine"
    """idro, official: what is taken of two groups' gradients."""
    layers: int | Literal["all"] = 3
    """idro, official: last transformer layers whose gradients are compared; `all`: every trained weight."""
    timing: Literal["lagged", "current"] = "lagged"
    """idro: weights of the step before, or of this step (as published; a further backward pass)."""
    exclude_self: bool = False
    """idro: a group's similarity with itself does not count."""
    normalise_present: bool = True
    """idro: weights of the batch's groups are scaled to sum 1; False: eq. 5 as it stands."""
    eta: float = Field(0.01, gt=0)
    """group_dro: step size on group losses."""

    @property
    def uses_gradients(self) -> bool:
        """Whether weights follow from similarities of gradients."""
        return self.mode in BOTH

    @model_validator(mode="after")
    def _possible(self) -> GroupSettings:
        unused = sorted(set(USED_BY) - {name for name, modes in USED_BY.items() if self.mode in modes})
        given = [name for name in unused if getattr(self, name) != type(self).model_fields[name].default]
        if given:
            modes = " and ".join(USED_BY[given[0]])
            raise ValueError(f"{given[0]} is for mode {modes}, mode {self.mode} does not use it")
        if self.effective is not None and self.temperature != type(self).model_fields["temperature"].default:
            raise ValueError("effective finds the temperature: leave temperature out, or set effective: null")
        if self.mode == "official" and self.similarity != "cosine":
            raise ValueError("mode official compares cosines; for inner products take mode idro")
        if isinstance(self.layers, int) and self.layers < 1:
            raise ValueError("layers is at least 1, or `all`")
        return self


BOTH = ("idro", "official")
USED_BY: dict[str, tuple[str, ...]] = {
    "beta": (*BOTH, "alpha"),
    **dict.fromkeys(("layers", "similarity"), BOTH),
    **dict.fromkeys(("kappa", "temperature", "effective", "timing", "exclude_self", "normalise_present"), ("idro",)),
    **dict.fromkeys(("rho", "ema", "devices"), ("official",)),
    "eta": ("group_dro",),
}


def couples_groups(objective: ObjectiveSettings) -> bool:
    """Whether a document takes part in the losses of several groups."""
    return objective.name == "info_nce" and objective.in_batch


def choose_engine(groups: GroupSettings, objective: ObjectiveSettings) -> tuple[EngineName, str]:
    """Choose how similarities of group gradients are computed, and say why.

    Raises:
        ValueError: settings that can't be combined; the sentence says which can.
    """
    whole = groups.similarity == "cosine" or groups.exclude_self
    wanted = "similarity: cosine" if groups.similarity == "cosine" else "exclude_self"
    mixed = "in-batch negatives, which mix the groups' documents" if couples_groups(objective) else ""
    reason = mixed or ("layers: all" if groups.layers == "all" else "")
    if reason and whole:
        raise ValueError(
            f"{wanted} needs each group's own gradient and can't be combined with {reason}: set "
            "similarity: dot without exclude_self"
        )
    if reason:
        return "jvp", f"there are {reason}" if mixed else f"of {reason}"
    return "segment", f"{wanted if whole else 'similarity: dot'} of single layers"


def check_groups(groups: GroupSettings, objective: ObjectiveSettings, training: TrainingSettings) -> None:
    """Whether weights of groups fit an objective and how it is trained.

    Raises:
        ValueError: they don't; the sentence says why and what to set.
    """
    if objective.name not in PER_QUERY:
        raise ValueError(f"groups weigh losses of queries ({', '.join(PER_QUERY)}), {objective.name} is none")
    if groups.mode == "erm":
        return
    if training.batch_queries % groups.devices:
        raise ValueError(
            f"a batch of {training.batch_queries} queries is no multiple of {groups.devices} devices: change one"
        )
    if training.accumulation > 1:
        raise ValueError(
            "groups weigh the losses of a whole batch, which training.accumulation cuts: set it to 1 (for "
            "memory there is cache_chunk)"
        )
    if not groups.uses_gradients:
        return
    engine, _ = choose_engine(groups, objective)
    if training.cache_chunk is not None and engine != "jvp":
        raise ValueError(
            f"engine {engine} holds the activations of the compared layers to the end of the step, which "
            "training.cache_chunk avoids: leave it out, or take similarity: dot, layers: all"
        )


class GroupKeys(StageKeys):
    """Keys of a fine-tuning stage whose losses are weighted by groups of queries (COCO-DR)."""

    clusters: ClusterSettings | None = None
    """K-means of the training queries by the parent's embeddings, for `groups`."""
    groups: GroupSettings | None = None
    """How the losses of query clusters are weighted."""

    def check(self, owner: Any) -> None:
        """Refuse groups without clusters, and a stage whose losses or gradients can't be told apart by group."""
        if self.groups is None or self.clusters is None:
            raise ValueError("groups are weighted over clusters: give both or none")
        check_groups(self.groups, owner.objective, owner.training)
        if owner.freezing is not None and self.groups.uses_gradients:
            raise ValueError(
                f"{owner.freezing}: groups compare gradients of layers that a relevance module leaves frozen: "
                f"take a mode without gradients (balanced, group_dro), or leave {owner.freezing} out"
            )
        if owner.further is not None and self.groups.uses_gradients:
            raise ValueError(
                f"{owner.further}: groups compare gradients of a step that holds queries and their documents "
                f"alone: take a mode without gradients (balanced, group_dro), or leave {owner.further} out"
            )


SETTINGS = PaperSettings(finetune=GroupKeys)
