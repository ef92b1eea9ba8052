"""The models that come with batchscale, one module each: sizes, options, and how they are built."""
