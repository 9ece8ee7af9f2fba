"""Parts of the check of a GPU (`benchmarks/gpu.py`): correctness against the CPU, throughput, goals, report."""
