"""What a model folder promises, and its files."""
