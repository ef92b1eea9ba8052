"""Trained instruments: export, storage, playing examples, and timbre transfer."""
