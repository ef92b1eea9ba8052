"""Data sets by name: their descriptions, their files, and how they become arrays."""
