"""Several processes and nodes as one, and how they end early."""
