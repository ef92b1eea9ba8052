"""Files of data sets: where they come from and lie, how they are fetched, verified and unpacked. Imports no jax."""
