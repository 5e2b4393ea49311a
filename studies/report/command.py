"""`multitask report`: the report of a preset that was run."""

from dataclasses import field
from pathlib import Path

from minbert.settings import settings
from multitask.cli.arguments import POSITIONAL, Command
from studies.engine.presets import STUDIES, ReportName


@settings
class Report:
    """Write the report of `experiments run` again, from the runs that there are."""

    preset: ReportName = field(default="sample", metadata=POSITIONAL)
    """The preset, such as sample or small; or `tasks`, for the table of a tasks file."""
    runs: Path = Path("runs")
    """Folder of all runs."""
    report: Path = Path("report")
    """Folder of the report."""


def report(options: Report) -> None:
    """Write the report; print its path."""
    from studies.report.study_page import write_report

    print(f"report: {write_report(options.runs, options.preset, options.report).resolve()}")


COMMAND = Command("report", Report, report, STUDIES)
