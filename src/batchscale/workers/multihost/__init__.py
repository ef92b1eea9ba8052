"""Several hosts that train one trial together: how they find each other, stay in contact, and act alike. No JAX."""
