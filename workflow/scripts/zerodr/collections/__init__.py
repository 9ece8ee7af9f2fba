"""Collections - fetch, normalise, audit, measure."""
