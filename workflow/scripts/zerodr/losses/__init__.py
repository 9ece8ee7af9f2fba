"""Compute losses: pure functions of tensors, one file a family."""
