"""Scripts end as commands do: bad input is one line, and exit code 2."""

import runpy
import sys

import pytest

SCRIPTS = {
    "scripts.gpu_grid": ("sample", "2", "new", "--data", "no-data"),
    "scripts.more_data": ("no-data", "new"),
    "scripts.larger_dev_sets": ("no-data", "new"),
    "scripts.pairs_by_kind": ("no-data", "new"),
    "scripts.publish_results": ("no-report", "new", "1"),
    "scripts.published_runs": ("no-runs", "new"),
    "scripts.unread_pairs": ("no-runs", "no-data", "no-data"),
    "studies.gradient_paradigm.captions_and_news": ("no-data", "no-data"),
    "studies.multitask_report.treebank_phrases": ("no-data", "no-trees", "new"),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_missing_file_is_one_line(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, script, raising=False)
    monkeypatch.setattr("sys.argv", [script, *SCRIPTS[script]])
    with pytest.raises(SystemExit) as end:
        runpy.run_module(script, run_name="__main__")
    error = capsys.readouterr().err
    assert (end.value.code, error.count("\n")) == (2, 1)
    assert error.startswith("error: no-")
    assert not [*tmp_path.iterdir()]
