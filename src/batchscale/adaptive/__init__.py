"""Studies that train and read by turns: what to train next depends on what was read from the records so far.

`predict` trains the little that cheap predictors need, stores it as records, and returns their predictions.
`run_experiment` runs an experiment, in rounds if its batch sizes or trials are "auto".
"""
