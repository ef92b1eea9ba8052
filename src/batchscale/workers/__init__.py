"""Runners: where jobs run. One interface, and the places that keep its promises."""
