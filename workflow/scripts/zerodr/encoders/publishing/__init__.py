"""Export models with their cards."""
