"""Metrics by name: their tasks, their direction, and how they add up over batches."""
