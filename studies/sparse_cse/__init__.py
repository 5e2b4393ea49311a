"""SparseCSE: does an encoder embed better without its least useful heads and neurons?"""
