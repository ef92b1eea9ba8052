"""Models by name: their declarations, and their modules, one file per architecture."""
