"""Adapter of rule `embed_corpus`."""

from zerodr.artifacts.adapter import run_rule
from zerodr.retrieval.embed import embed_corpus

run_rule(snakemake, embed_corpus)
