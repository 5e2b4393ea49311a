"""SparseCSE."""
