"""Differentiable synthesis of sound: oscillators, noise and reverb, the network that drives them, and its loss."""
