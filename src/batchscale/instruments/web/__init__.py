"""The web pages of instruments: uploads, training, playing."""
