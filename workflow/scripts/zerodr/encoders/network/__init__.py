"""The trainable bi-encoder: towers, pooling and what follows it."""
