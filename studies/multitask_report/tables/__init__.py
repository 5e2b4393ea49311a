"""The report's tables, and tables beyond it."""
