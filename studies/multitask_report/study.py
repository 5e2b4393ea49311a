"""The study of the multi-task report: its tables, and tables beyond it. No claims of the report are checked."""

from pathlib import Path

from studies.multitask_report import beyond_the_report, tables_1_to_10
from studies.study import Study

STUDY = Study(Path(__file__).parent, (*tables_1_to_10.TABLES, *beyond_the_report.TABLES))
