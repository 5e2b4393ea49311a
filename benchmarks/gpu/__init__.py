"""Everything that is to be measured on a GPU, with one command. See `__main__.py`."""
