"""Importers: what other tools recorded of training runs, read and written as a records tree."""
