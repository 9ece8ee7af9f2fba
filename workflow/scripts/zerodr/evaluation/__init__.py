"""Compute metrics, holes, significance and aggregates: pure functions of runs and judgements."""
