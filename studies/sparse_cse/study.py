"""The study of SparseCSE: tables of pruned encoders, the paper's claims, figures."""

from studies.report.verdicts import judge
from studies.sparse_cse import SPARSE_CSE
from studies.sparse_cse.claims import CLAIMS
from studies.sparse_cse.figures import SECTIONS
from studies.sparse_cse.tables import TABLES
from studies.sparse_cse.what_is_pruned import SECTIONS as WHAT_IS_PRUNED
from studies.study import Study

STUDY = Study(
    TABLES, (SPARSE_CSE,), lambda results: judge(CLAIMS, results.finished_tables), (*SECTIONS, *WHAT_IS_PRUNED)
)
