"""Optimisers and schedules of learning rates."""
