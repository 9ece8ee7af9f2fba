"""Embeddings, exact and approximate search by shard, merging and fusion."""
