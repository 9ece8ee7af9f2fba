"""Estimate time, memory and disk of planned jobs."""
