"""Loading the rows that a model is scored on."""

from dataclasses import replace

import pytest
import torch

from minbert.errors import InputError
from minbert.model import BertModel
from minbert.tokenizer import load_tokenizer
from multitask.evaluation.task_predictions import load_split, located
from multitask.models.config import HeadsConfig
from multitask.models.multitask_model import MultitaskModel
from multitask.tasks.declarations import load_tasks
from tests.multitask.declared import declared_tasks


def test_a_model_of_declared_tasks_asks_for_its_tasks_file(tiny_encoder, small_data, tmp_path):
    file = tmp_path / "tasks.toml"
    file.write_text(
        '[tasks.topic]\nkind = "classification"\ntext = "a"\nlabel = "b"\nlabels = ["x", "y"]\ntrain = "c.csv"'
    )
    torch.manual_seed(0)
    encoder, tokenizer = BertModel.from_pretrained(str(tiny_encoder)), load_tokenizer(str(tiny_encoder))
    model = MultitaskModel(encoder, tokenizer, load_tasks(file), "mean", HeadsConfig())
    with pytest.raises(
        InputError, match=r'task "topic" is not declared there, only .*; give the tasks file .*--tasks-file'
    ):
        load_split(model, small_data, "dev")


def test_files_of_a_task_are_read_as_they_are_declared_now():
    task = declared_tasks()["stars"]
    other = {"encoding": "latin-1", "decimal": ",", "missing": ("-",), "separator": ";", "quotes": False, "id": "key"}
    declared = replace(task, **other, weight=3.0)
    assert located(replace(task, weight=2.0), declared) == replace(declared, weight=2.0)
