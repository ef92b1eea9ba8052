"""Runners: the protocol that decides what trains next, and the places where trials run."""
