"""Tables of the gradient papers."""
