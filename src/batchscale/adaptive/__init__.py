"""Studies that train and read by turns: what to train next depends on what was read from the records so far.

`predict` trains the little that cheap predictors need, stores it as records, and returns their predictions.
"""
