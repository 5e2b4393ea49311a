"""The training loop, optimizer, gradient caching, tracking."""
