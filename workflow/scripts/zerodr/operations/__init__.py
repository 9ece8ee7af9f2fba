"""Run what a person types: commands, adapt, doctor, screen, folders, estimates, Slurm."""
