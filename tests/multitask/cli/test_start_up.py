"""Commands that people wait for import only what they need: pandas and scipy took longer than predicting three rows."""

import os
import subprocess
import sys

from tests.conftest import ROOT
from tests.multitask.declared import model_of_every_kind

SLOW = ("pandas", "pyarrow", "scipy", "sklearn", "matplotlib", "transformers", "torch._dynamo")


def test_predict_and_embed_import_no_slow_package_that_they_do_not_use(tmp_path, tiny_encoder):
    model_of_every_kind(tiny_encoder).save(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("A gem.\nBad.\n", encoding="utf-8")
    commands = [
        ["predict", "--model", "model", "--task", "topic", "--input", "texts.txt", "--output", "predicted.csv"],
        ["embed", "texts.txt", "embeddings.npy", "--model", "model"],
    ]
    code = (
        "import sys; from multitask.cli.main import main; "
        f"print([main(command) for command in {commands}], [name for name in {SLOW} if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.stdout.splitlines()[-1] == "[0, 0] []", ended.stderr
    assert (tmp_path / "embeddings.npy").is_file()
