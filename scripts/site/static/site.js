// A browser lets a page that was opened as a file fetch no others: the search then lists titles without extracts.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
