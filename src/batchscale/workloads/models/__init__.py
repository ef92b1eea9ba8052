"""Models by name: their facts (no jax) and, one file per architecture, the modules themselves."""
