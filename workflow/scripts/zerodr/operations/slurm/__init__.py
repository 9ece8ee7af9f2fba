"""Check that a Slurm cluster can run the jobs, before the first one."""
