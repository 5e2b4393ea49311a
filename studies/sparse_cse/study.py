"""The study of SparseCSE: tables of pruned encoders, the paper's claims, figures."""

from studies.sparse_cse.claims import CLAIMS
from studies.sparse_cse.figures import SECTIONS
from studies.sparse_cse.tables import TABLES
from studies.study import Paper, Study

SPARSE_CSE = Paper("sparse", "SparseCSE", "arXiv 2311.03881", "Sparse Contrastive Learning of Sentence Embeddings")
STUDY = Study(TABLES, (SPARSE_CSE,), SECTIONS, CLAIMS)
