"""Settings for the search of a shard of embeddings, of an encoder's recipe and of the params of rule search_shard."""

from typing import ClassVar, Literal

from pydantic import Field

from zerodr.config.base import Settings


class IndexSettings(Settings):
    """Exact search, or an approximate index with its sizes."""

    read_with: ClassVar = {
        "hnsw_links": ("index", ("hnsw",)),
        "hnsw_search": ("index", ("hnsw",)),
        "ivf_lists": ("index", ("ivfpq",)),
        "ivf_probes": ("index", ("ivfpq",)),
        "pq_bytes": ("index", ("ivfpq",)),
        "recall_queries": ("index", ("hnsw", "ivfpq")),
    }
    index: Literal["flat", "hnsw", "ivfpq"] = "flat"
    """`flat` is exact. The others report their recall against exact search."""
    hnsw_links: int = Field(32, ge=2)
    """HNSW: links of a node."""
    hnsw_search: int = Field(512, ge=1)
    """HNSW: breadth of the search."""
    ivf_lists: int = Field(1024, ge=1)
    """IVF-PQ: number of inverted lists (fewer on small shards)."""
    ivf_probes: int = Field(64, ge=1)
    """IVF-PQ: lists visited by a query."""
    pq_bytes: int = Field(48, ge=1)
    """IVF-PQ: bytes of one code; divides the dimension."""
    recall_queries: int = Field(200, ge=1)
    """Queries on which an approximate index is compared with exact search."""
