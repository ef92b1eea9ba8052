"""Prediction: cheap estimates of the critical and the optimal batch size, beside the measured ones. Trains nothing.

Each method has a file; it reads what was measured (norms of gradients, losses, easier goals, public curves) and returns
``Prediction`` values. What has to be trained for it is trained by ``run``.
"""
