"""Artefacts: content-addressed folders of runs, and their locks."""
