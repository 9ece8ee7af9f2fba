"""Use lineage records: verify, explain, compare, and publish to MLflow."""
