"""Our own metadata: the typed, versioned values that batchscale adds to ``study.json`` and ``metadata.json``.

They stand under one key of their own. Published data has no such key: then there is no metadata (None), which is not
the same as metadata without values.
"""
