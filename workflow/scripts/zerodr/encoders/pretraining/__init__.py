"""Extend a bi-encoder for pretraining: heads, predicted tokens, words."""
