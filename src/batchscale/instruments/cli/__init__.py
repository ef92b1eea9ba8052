"""The commands that work on recordings and instruments."""
