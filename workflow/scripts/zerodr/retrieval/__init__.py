"""Embed texts, search shards exactly or approximately, merge and fuse rankings."""
