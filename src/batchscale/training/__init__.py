"""Training: one compiled loop that turns a workload, metaparameters and a seed into measurements."""
