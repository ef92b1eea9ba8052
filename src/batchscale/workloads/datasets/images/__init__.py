"""What data sets of images share: reading, decoding and cutting, and the splits made of them."""
