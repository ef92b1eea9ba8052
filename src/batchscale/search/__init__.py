"""Search: unit cube to metaparameter values and back, quasi-random points, the edge guard."""
