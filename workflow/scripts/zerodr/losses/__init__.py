"""Losses: pure functions of tensors, one file a paper."""
