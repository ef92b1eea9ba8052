"""The metrics that come with batchscale, one module each."""
