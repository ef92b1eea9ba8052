"""Parts that data sets of images share: options, reading, decoding and cropping."""
