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


OTHERS = {
    "scripts.gpu_grid": (("sample", "2", "f", "--data", "d", "--seeds", "0"), "--seeds is 0; expected at least 1"),
    "scripts.more_data": (("d", "new", "--drawn", "-5"), "--drawn is -5; expected at least 1"),
    "scripts.published_runs": (("text.md", "new"), "text.md: no file of runs"),
    "scripts.pairs_by_kind": (("d", "new", "--pairs", "0"), "--pairs is 0; expected at least 1"),
    "scripts.gpu_inputs": (("new", "--data", "d/real"), "--data d/real: expected a folder, of a name that no other"),
}
"""Other mistakes, and how their messages begin."""


@pytest.mark.parametrize("script", OTHERS)
def test_other_mistakes_are_one_line(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.md").write_text("no table")
    monkeypatch.delitem(sys.modules, script, raising=False)
    arguments, message = OTHERS[script]
    monkeypatch.setattr("sys.argv", [script, *arguments])
    with pytest.raises(SystemExit) as end:
        runpy.run_module(script, run_name="__main__")
    error = capsys.readouterr().err
    assert (end.value.code, error.count("\n")) == (2, 1)
    assert error.startswith(f"error: {message}")


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
