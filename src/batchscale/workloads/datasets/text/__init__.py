"""Parts that data sets of text share: sentences, sub-words, rows of tokens, and splits."""
