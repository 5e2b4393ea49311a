"""Predict, search, export."""
