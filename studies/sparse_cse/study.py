"""The study of SparseCSE: tables of pruned encoders, the paper's claims, figures."""

from studies.sparse_cse import SPARSE_CSE
from studies.sparse_cse.claims import CLAIMS
from studies.sparse_cse.figures import SECTIONS
from studies.sparse_cse.tables import TABLES
from studies.study import Study

STUDY = Study(TABLES, (SPARSE_CSE,), SECTIONS, CLAIMS)
