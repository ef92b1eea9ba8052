"""The layers that architectures are made of, in the forms that are fast."""
