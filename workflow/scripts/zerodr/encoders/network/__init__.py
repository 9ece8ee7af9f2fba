"""Build the trainable bi-encoder: towers, pooling and projections."""
