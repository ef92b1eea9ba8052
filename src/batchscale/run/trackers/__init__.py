"""Trackers: other tools that a run mirrors its trials and measurements to, one file each."""
