"""Let single queries be augmented: what embeds a query of MoMA's rankings, and the memories that it can read."""

from zerodr.lookup.sources import QueryEncoder

LOOKUP = {
    "papers.moma.embed_fused:embed_fused_queries": QueryEncoder(
        "zerodr.papers.moma.live_queries:AugmentedQueries", "zerodr.papers.moma.live_queries:list_memories"
    )
}
