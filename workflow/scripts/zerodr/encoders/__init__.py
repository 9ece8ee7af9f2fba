"""Text encoders and the contract of a model folder."""
