"""One training engine: objectives with hooks, optimisers, schedules, checkpoints, distributed glue."""
