"""Training: the loop, what it trains, the optimizer, checkpoints and resuming."""
