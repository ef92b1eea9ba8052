"""Figures: a chart is a data function (records to frame) and a chart function (frame to Altair chart)."""
