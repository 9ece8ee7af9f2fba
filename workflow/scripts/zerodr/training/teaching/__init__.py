"""Cross-encoders that teach by their scores."""
