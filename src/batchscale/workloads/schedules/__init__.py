"""Learning rate schedules by name: metaparameters with ranges, and formulas."""
