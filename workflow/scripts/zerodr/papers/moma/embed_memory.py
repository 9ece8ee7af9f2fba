"""Stages that embed memories, and queries that search them, by the augmenter. Like other encoding, without torch."""

from zerodr.artifacts.stage import Stage
from zerodr.papers.moma.folders import augmenter_of
from zerodr.retrieval.embed import embed_corpus, embed_queries


def embed_memory(stage: Stage) -> None:
    """Inputs `collection` (the memory), `model` (with an augmenter); output `embeddings`, rows of one shard."""
    embed_corpus(stage, augmenter_of(stage.path("model"), True))


def embed_memory_queries(stage: Stage) -> None:
    """Inputs `collection`, `model` (with an augmenter); output `embeddings`, by which augmentation is searched."""
    embed_queries(stage, augmenter_of(stage.path("model"), True))
