"""Create the first model of a chain: from a checkpoint, by import, or from scratch."""
