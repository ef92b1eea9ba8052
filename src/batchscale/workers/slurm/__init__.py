"""The SLURM runner: an array of worker jobs that exchange messages with the driver through the run's folder."""
