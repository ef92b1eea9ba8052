"""What data sets of text share: sentences, sub-words, rows of tokens, and the splits made of them."""
