"""The optimizers that come with batchscale, one module each: metaparameters, defaults, ranges and the rule."""
