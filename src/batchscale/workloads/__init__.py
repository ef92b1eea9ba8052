"""Workloads: data sets, models, optimizers, schedules, losses, metrics, and the registry of their names."""
