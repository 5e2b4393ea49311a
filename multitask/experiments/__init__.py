"""Experiments: tables of runs. What to run stands in presets, running it in run, what was run in a record."""
