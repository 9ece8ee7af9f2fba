"""Fetch, normalise, audit and measure collections."""
