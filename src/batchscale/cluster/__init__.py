"""The hosts that train one trial together: who they are, how they find each other, how they agree. Free of JAX."""
