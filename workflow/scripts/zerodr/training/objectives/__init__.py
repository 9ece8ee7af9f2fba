"""Objectives: what is minimised, as named loss terms of the vectors of a batch."""
