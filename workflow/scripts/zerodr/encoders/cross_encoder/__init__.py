"""Query and document read together."""
