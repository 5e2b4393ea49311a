"""Templates and word lists of the bundled sample data, one module per kind of text."""
