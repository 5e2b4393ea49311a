"""Studies: clients of the library that reproduce papers."""
