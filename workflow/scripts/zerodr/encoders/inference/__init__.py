"""Encode many texts fast."""
