"""Encode texts and pairs of texts with the models of a bench; read and write model folders."""
