"""The architectures, one module each, as Flax NNX modules (or pure functions)."""
