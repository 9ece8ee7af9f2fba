"""Add iDRO to a fine-tuning stage: the cluster of each query, and losses weighted by cluster."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zerodr.artifacts.stage import Stage
from zerodr.config.params import FinetuneParams
from zerodr.config.training import ObjectiveSettings
from zerodr.errors import ArtifactError
from zerodr.papers.coco_dr.objective import weigh_groups
from zerodr.papers.coco_dr.settings import GroupedStage, GroupSettings
from zerodr.training.additions import Addition, PaperTraining, Prepared, together
from zerodr.training.data.examples import Examples
from zerodr.training.objectives.base import Objective

CLUSTERS = "clusters.parquet"


class Groups(Addition):
    """Weights of query clusters, from input `clusters`. The output holds `groups/weights.parquet` where they change."""

    @classmethod
    def asked(cls, stage: Stage, params: FinetuneParams) -> bool:
        """Return whether the settings have `groups`."""
        return together(stage, "groups", _groups(params) is not None, "clusters")

    def examples(self, examples: Examples, model: Any) -> Examples:
        """With the cluster of each query."""
        return replace(examples, groups=clusters_of(self.stage.path("clusters") / CLUSTERS, examples.queries))

    def objective(self, objective: Objective, prepared: Prepared) -> Objective:
        """Weighted by the clusters that training queries belong to."""
        groups, of_queries = _groups(self.params), prepared.examples.groups
        assert groups is not None and of_queries is not None, "examples have clusters"
        loss = self.params.settings.objective
        assert isinstance(loss, ObjectiveSettings), "as of all stages with clusters"
        clusters = np.unique(of_queries[prepared.rows]).tolist()
        return weigh_groups(objective, groups, loss, prepared.model, clusters)


def _groups(params: FinetuneParams) -> GroupSettings | None:
    return params.settings.groups if isinstance(params.settings, GroupedStage) else None


def clusters_of(path: Path, queries: pa.Array) -> np.ndarray:
    """Cluster of each query, (N,) int32; a file of cluster_queries may hold others, too.

    Raises:
        ArtifactError: it lacks one.
    """
    table = pq.read_table(path, columns=["query", "cluster"])
    rows = pc.index_in(queries, value_set=table["query"].combine_chunks())
    if rows.null_count:
        first = queries.filter(pc.is_null(rows))[0]
        raise ArtifactError(
            path,
            f"lacks {rows.null_count} of the {len(queries)} mined queries, the first is {first}",
            "cluster the queries of this source and split",
        )
    return table["cluster"].combine_chunks().take(rows).to_numpy().astype(np.int32)


TRAINING = PaperTraining((Groups,))
