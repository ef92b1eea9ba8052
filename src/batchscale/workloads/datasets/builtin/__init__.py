"""The data sets that come with batchscale, one module each: a declaration without jax, and its loader."""
