"""Models: an encoder with heads, pooling, and encoders of sentences."""
