"""Encoder with heads, pooling, sentence encoders."""
