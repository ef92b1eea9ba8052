"""A study: which trials are trained, when each ends, and how they are recorded. No JAX and no processes here."""
