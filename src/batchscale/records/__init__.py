"""Records: the open directory format of studies, trials and measurements."""
