"""Metrics, holes, significance and aggregation - pure functions of runs and judgements."""
