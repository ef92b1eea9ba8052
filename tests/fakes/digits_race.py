"""A real experiment that takes some seconds: a race on digits, for runs that are killed, moved and compared."""

EXPERIMENT = """
goal = "val/classification_error < 0.06"
batch_sizes = [2, 32, 256]
trials = 8
stop = "race"
finishers = 3
[workload]
dataset = "digits"
model = "fc_64"
optimizer = "nesterov_momentum"
[budget]
epochs = 6
at_least_steps = 150
[search]
repeats = 1
"""
