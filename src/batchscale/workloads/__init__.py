"""Workloads: data sets, models, optimizers, schedules, losses, metrics, and the registry of their names.

Importing this package imports no jax; ``get_workload`` does.
"""
