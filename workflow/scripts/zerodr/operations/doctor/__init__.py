"""Check what a machine lacks, and name the remedy; nothing is changed."""
