"""Device and precision, ranks, random streams, signals, errors."""
