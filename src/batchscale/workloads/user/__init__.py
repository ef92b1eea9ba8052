"""Workloads of the user's: what may be registered, and how it becomes a workload."""
