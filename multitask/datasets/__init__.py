"""Reading, checking, fetching and batching of the data files."""
