"""A run as a whole: the loop that assigns trials to workers and records results, its checks, signals and status."""
