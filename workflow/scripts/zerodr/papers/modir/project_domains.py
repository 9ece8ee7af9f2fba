"""Stage `project_domains`: put vectors of source and target in the plane (MoDIR figure 4, BERM figures 5 and 6).

Distances and sizes of groups in a t-SNE picture mean little; Domain-Acc and KNN-Source% are the numbers.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from zerodr.artifacts.stage import Stage
from zerodr.config.base import validate
from zerodr.papers.modir.measure_domains import SOURCE, TARGET, DomainSample, sampled_domains

DOMAINS = {SOURCE: "source", TARGET: "target"}


class ProjectDomainsSettings(DomainSample):
    """Params of rule project_domains."""

    documents: int = Field(300, ge=2)
    """Documents of each domain, a seeded sample."""
    queries: int = Field(150, ge=2)
    """Queries of each domain, likewise."""
    perplexity: float = Field(30.0, gt=1)
    """Of t-SNE; a third of the points at most is taken."""


def project_domains(stage: Stage) -> None:
    """Project vectors: inputs `model`, `source`, `targets`; output `projection` (parquet: domain, kind, x, y).

    Raises:
        ConfigError: other targets than the settings name.
        CollectionError: a domain has no queries of its split.
    """
    settings = validate(ProjectDomainsSettings, stage.params, stage.spec.name())
    _, vectors = sampled_domains(stage, settings)
    groups = [(DOMAINS[number], kind, kinds[kind].numpy()) for number, kinds in enumerate(vectors) for kind in kinds]
    points = in_the_plane(np.concatenate([group for *_, group in groups]), settings.perplexity, stage.seed)
    names = [(domain, kind) for domain, kind, group in groups for _ in range(len(group))]
    table = pa.table(
        {
            "domain": [name for name, _ in names],
            "kind": [kind for _, kind in names],
            "x": points[:, 0],
            "y": points[:, 1],
        }
    )
    pq.write_table(table, stage.output("projection"), compression="zstd")


def in_the_plane(vectors: np.ndarray, perplexity: float, seed: int) -> np.ndarray:
    """t-SNE of vectors (N, D) by their distances, (N, 2); it begins with the two principal axes."""
    from sklearn.manifold import TSNE

    projection = TSNE(perplexity=min(perplexity, (len(vectors) - 1) / 3), init="pca", random_state=seed, n_jobs=1)
    return projection.fit_transform(vectors.astype(np.float32)).astype(np.float64)
