"""Tables of SparseCSE."""
