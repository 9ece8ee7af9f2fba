"""Encoding many texts fast."""
