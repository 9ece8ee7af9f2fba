"""What pretraining adds to a bi-encoder: heads, predicted tokens, words."""
