"""The Python API: curves, plans and measurements as objects that show themselves in a notebook.

Its names are public names of ``batchscale`` itself. What it shows comes from ``analysis``, ``planning`` and
``figures``; what it measures is run by ``run``, which ``measure`` alone loads.
"""
