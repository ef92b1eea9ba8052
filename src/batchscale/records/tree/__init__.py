"""The records tree: the published layout of folders and files, read, written and recovered."""
