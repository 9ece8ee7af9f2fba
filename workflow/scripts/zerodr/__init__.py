"""zerodr: a bench for zero-shot dense retrieval, run as one Snakemake DAG."""

__version__ = "0.1.0"
