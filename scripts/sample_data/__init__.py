"""Generators, templates and word lists of the bundled sample data."""
