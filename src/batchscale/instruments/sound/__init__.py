"""Recordings as arrays: read, tracked, cut into segments, and stored as a prepared folder. Imports no jax."""
