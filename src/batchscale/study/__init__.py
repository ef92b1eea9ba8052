"""The protocol of a study: what is trained next, when a trial ends, what is recorded. No JAX and no processes here."""
