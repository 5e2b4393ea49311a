"""The study of the multi-task report: its tables, tables beyond it, and the claims that they decide."""

from studies.multitask_report.claims import CLAIMS
from studies.multitask_report.tables import TABLES
from studies.study import Paper, Study

REPORT = Paper("report", "Multi-task report", "CS224N", "Contrastive Learning for Generalizable Sentence Embeddings")
STUDY = Study(TABLES, (REPORT,), claims=CLAIMS)
