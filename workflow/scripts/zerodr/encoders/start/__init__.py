"""Models before any training of ours: from checkpoints, from elsewhere, from scratch."""
