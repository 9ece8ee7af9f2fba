"""Reading lineage records - verify, explain, diff, publish to MLflow."""
