"""Score pairs of query and document that one network reads together."""
