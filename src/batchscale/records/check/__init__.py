"""The rules of the format, checked: what is wrong in a tree, a table or an archive, and where."""
