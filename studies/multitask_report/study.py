"""The multi-task report: Tables 1 to 10, Figure 2, and tables beyond it. It makes no claims that are checked here."""

from studies.multitask_report import beyond_the_report, tables_1_to_10
from studies.study import Study

STUDY = Study((*tables_1_to_10.TABLES, *beyond_the_report.TABLES))
