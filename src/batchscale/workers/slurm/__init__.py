"""The SLURM runner: an array of worker jobs that talk with the driver through files of the run's own folder."""
