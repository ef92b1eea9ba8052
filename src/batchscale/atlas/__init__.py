"""The atlas: public measurements of steps, epochs or tokens to a goal against batch size, beside a user's own.

Owns the carried table (``data/``, made by ``scripts/make_atlas.py``), its sources and licences, the user's own curves,
and the search for similar ones. The analysis of a curve is that of ``batchscale.analysis``.
"""
