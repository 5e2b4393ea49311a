"""SparseCSE: does an encoder embed better without its least useful heads and neurons?"""

from studies.study import Paper

SPARSE_CSE = Paper("sparse", "SparseCSE", "arXiv 2311.03881", "Sparse Contrastive Learning of Sentence Embeddings")
