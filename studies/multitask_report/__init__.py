"""The multi-task report."""
