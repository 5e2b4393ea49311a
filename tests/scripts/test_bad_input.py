"""Scripts end as commands do: bad input is one line, and exit code 2."""

import runpy
import sys

import pytest

MISTAKES = [
    ("scripts.gpu_grid", ("sample", "2", "new", "--data", "no-data"), "no-data"),
    ("scripts.more_data", ("no-data", "new"), "no-data"),
    ("scripts.larger_dev_sets", ("no-data", "new"), "no-data"),
    ("scripts.pairs_by_kind", ("no-data", "new"), "no-data"),
    ("scripts.publish_results", ("no-report", "new", "1"), "no-report"),
    ("scripts.published_runs", ("no-runs", "new"), "no-runs"),
    ("scripts.unread_pairs", ("no-runs", "no-data", "no-data"), "no-runs"),
    ("studies.gradient_paradigm.captions_and_news", ("no-data", "no-data"), "no-data"),
    ("studies.multitask_report.treebank_phrases", ("no-data", "no-trees", "new"), "no-"),
    ("scripts.gpu_grid", ("sample", "2", "f", "--data", "d", "--seeds", "0"), "--seeds is 0; expected at least 1"),
    ("scripts.more_data", ("d", "new", "--drawn", "-5"), "--drawn is -5; expected at least 1"),
    ("scripts.published_runs", ("text.md", "new"), "text.md: no file of runs"),
    ("scripts.pairs_by_kind", ("d", "new", "--pairs", "0"), "--pairs is 0; expected at least 1"),
    ("scripts.gpu_inputs", ("new", "--data", "d/real"), "--data d/real: expected a folder, of a name that no other"),
    *(
        (script, (*inputs, "."), ".: exists already; name another folder, or remove it")
        for script, inputs in {
            "scripts.more_data": ("d",),
            "scripts.larger_dev_sets": ("d",),
            "scripts.pairs_by_kind": ("d",),
            "scripts.gpu_inputs": (),
            "studies.multitask_report.treebank_phrases": ("d", "trees"),
        }.items()
    ),
]


@pytest.mark.parametrize(("script", "arguments", "message"), MISTAKES)
def test_a_mistake_is_one_line_and_writes_nothing(script, arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.md").write_text("no table")
    monkeypatch.delitem(sys.modules, script, raising=False)
    monkeypatch.setattr("sys.argv", [script, *arguments])
    with pytest.raises(SystemExit) as end:
        runpy.run_module(script, run_name="__main__")
    error = capsys.readouterr().err
    assert (end.value.code, error.count("\n")) == (2, 1)
    assert error.startswith(f"error: {message}")
    assert [path.name for path in tmp_path.iterdir()] == ["text.md"]
