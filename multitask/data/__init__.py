"""Readers by format, checks, downloads, tokens, batches, and what a model was trained on."""
