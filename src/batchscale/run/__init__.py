"""A run as a whole: the loop that feeds workers and keeps records, its checks, its signals, and how it stands."""
