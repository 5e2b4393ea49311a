"""The study of the multi-task report: its tables, and tables beyond it. No claims of the report are checked."""

from pathlib import Path

from studies.multitask_report.tables import TABLES
from studies.study import Study

STUDY = Study(Path(__file__).parent, TABLES)
