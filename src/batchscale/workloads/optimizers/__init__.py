"""Optimizers by name: metaparameters with defaults and ranges, and the update rules."""
