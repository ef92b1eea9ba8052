"""The report: one self-contained page on the result of an experiment."""
