"""The training data of fine-tuning: mined queries with their texts, and their batches."""
