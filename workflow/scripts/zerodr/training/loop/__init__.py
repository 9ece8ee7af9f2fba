"""The one training loop: steps, gradient caching, checkpoints, dev evaluation, fast kernels."""
