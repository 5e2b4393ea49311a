"""Pruning of heads and neurons."""
