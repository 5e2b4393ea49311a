"""The two gradient papers."""
