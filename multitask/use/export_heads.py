"""Export of a fine-tuned model with its heads as ONNX, for programs that use it without this project.

There is one file for all tasks. It holds the encoder, which is most of its size, once; and tasks that read the same
sentences share one call. Its inputs are always sequences of tokens. A task of pairs whose sentences are encoded
separately reads two sequences for each row, one after the other.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from minbert.errors import InputError
from minbert.files import read_json, write_json
from multitask.data.contamination import TrainedOn
from multitask.data.markup import aligned
from multitask.data.texts import Template, in_words
from multitask.evaluation.task_scores import score_tasks
from multitask.models.estimates import estimate, load_split
from multitask.models.multitask_model import Columns, MultitaskModel, estimate_columns
from multitask.tasks.kinds import MultiLabel, PairClassification, Regression
from multitask.tasks.labels import Labelled
from multitask.tasks.scores import score_text
from multitask.tasks.task import Task
from multitask.use.export import (
    CHECKED,
    ONNX_PACKAGES,
    ONNX_TOLERANCE,
    check_export_folder,
    export_folder,
    require,
    write_onnx,
)

MODEL = "model.onnx"
HEADS_DESCRIPTION = "tasks.json"
INPUTS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
"""The file's inputs, and the names of the same values in an `Encoding` of the library tokenizers."""

CHECKED_ROWS = 200  # of each task, if there are dev sets
ROWS_PER_CALL = 32


def export_onnx_with_heads(
    model: MultitaskModel, folder: Path, trained_on: TrainedOn, data: Path | None = None, int8: bool = False
) -> str:
    """Write a folder with model.onnx, the tokenizer's files and tasks.json, which says how to use them.

    model.onnx maps `input_ids`, `attention_mask` and `token_type_ids`, all [sequences, tokens] int64, to one output for
    each task, named after it: probabilities [rows, labels], or a regression's values in the unit of its labels, [rows].
    ONNX Runtime's outputs are compared with ours before the folder appears.

    Args:
        model: in eval mode; on the CPU, in fp32.
        folder: is written atomically.
        trained_on: what the model was trained on.
        data: a tasks file, or the folder of the course's files, of whose dev sets rows are compared.
        int8: write the weights in int8 with a scale for each channel, and quantise activations when they are computed.

    Returns:
        A report for the terminal: the rows that were compared and the largest difference in fp32 (of probabilities, or
        of shares of a regression's range), and the scores of an int8 file next to those of fp32.

    Raises:
        InputError: the packages onnx, onnxscript and onnxruntime are not installed, `data` does not fit the model, or
            a task reads other parts of long texts than their first tokens.
        RuntimeError: ONNX Runtime computes something else.
    """
    check_export_folder(folder)
    require((*ONNX_PACKAGES, "onnxruntime"))
    if taken := model.tasks.keys() & INPUTS.keys():
        raise InputError(f"the task {min(taken)} has the name of an input of the ONNX file; rename the task")
    if others := [task for task in model.tasks.values() if task.long != "head"]:
        raise others[0].problem(f"long is {others[0].long}; programs that use an ONNX file read only the first tokens")
    dev = load_split(model, data, "dev") if data is not None else {}
    examples = {name: rows.examples for name, rows in dev.items()}
    with export_folder(folder, trained_on) as temporary:
        path = temporary / MODEL
        encoder = model.encoder
        batch = encoder.tokenizer(CHECKED, encoder.max_length)
        write_onnx(_WithHeads(model), {name: getattr(batch, name) for name in INPUTS}, list(model.tasks), path)
        encoder.tokenizer.save(temporary)
        write_json(temporary / HEADS_DESCRIPTION, {"weights": "int8" if int8 else "fp32", **heads_description(model)})
        compared: dict[str, Columns] = {
            name: [c[:CHECKED_ROWS] for c in examples[name].sentences]
            if name in examples
            else [CHECKED, CHECKED[::-1]][: len(task.files.text)]
            for name, task in model.tasks.items()
        }
        difference = _compare(model, temporary, compared)
        rows, sizes = sum(len(columns[0]) for columns in compared.values()), [path.stat().st_size / 1e6]
        report = [f"checked: {rows} rows; the largest difference is {difference:.1e}"]
        if int8:
            _quantise(path)
            sizes.append(path.stat().st_size / 1e6)
            if dev:
                scores = score_tasks(model.tasks, estimate(model, dev), examples)
                exported = ExportedModel(temporary)
                estimates = {n: exported.estimates(model.tasks[n], e.sentences) for n, e in examples.items()}
                report.append(loss_table(scores.tasks, score_tasks(model.tasks, estimates, examples).tasks))
                report += [f"{MODEL}: {sizes[0]:.1f} MB in fp32, {sizes[1]:.1f} MB in int8"]
    return "\n".join(report)


def loss_table(fp32: Mapping[str, float], int8: Mapping[str, float]) -> str:
    """The tasks' scores with both weights, which are NaN where they are undefined."""
    rows = [[n, score_text(s), score_text(int8[n]), score_text(s - int8[n], "+z.4f")] for n, s in fp32.items()]
    return aligned([["task", "fp32", "int8", "loss"], *rows])


def heads_description(model: MultitaskModel) -> dict[str, Any]:
    """What a program must know to use the file.

    Of each input, the attribute of an `Encoding` of the library tokenizers. Of each task: `words` before and after each
    text; `input`, which is `sentence`, `two_sentences` (each row is two sequences, one after the other) or `joint_pair`
    (each row is one sequence of both sentences); `labels` in the order of the output's columns; `thresholds` above
    which each of several labels is predicted; `range` of a regression.
    """
    tasks = {name: _task_description(model, task) for name, task in model.tasks.items()}
    return {"max_length": model.encoder.max_length, "inputs": INPUTS, "tasks": tasks}


def _task_description(model: MultitaskModel, task: Task) -> dict[str, Any]:
    inputs = "joint_pair" if model.reads_jointly(task.name) else "two_sentences" if task.pair else "sentence"
    words = [made.words for made in task.files.words]
    found: dict[str, Any] = {"kind": task.kind, "text": list(task.files.text), "words": words, "input": inputs}
    if isinstance(task, Regression):
        return {**found, "output": "value", "range": list(task.bounds)}
    assert isinstance(task, Labelled)
    found |= {"output": "probabilities", "labels": list(task.names)}
    if isinstance(task, MultiLabel):
        found["thresholds"] = list(task.thresholds or (0.5,) * task.outputs)
    return found


class _WithHeads(nn.Module):
    """A model's tasks as one function of padded tensors."""

    def __init__(self, model: MultitaskModel) -> None:
        super().__init__()
        self.encoder = model.encoder
        self.heads = model.heads
        self.tasks = model.tasks
        self.two_sequences = {name for name in model.tasks if model.sequences_per_row(name) == 2}

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, ...]:
        """All [sequences, tokens] int64 -> each task's output, [rows, labels] or [rows]."""
        embeddings = self.encoder(input_ids, attention_mask, token_type_ids)  # [sequences, hidden]
        even = embeddings.shape[0] // 2 * 2  # tasks of sentences may have an odd number of sequences
        pairs = embeddings[:even:2], embeddings[1::2]
        return tuple(
            task.readable(self.heads[name](*(pairs if name in self.two_sequences else (embeddings,))))
            for name, task in self.tasks.items()
        )


def _quantise(path: Path) -> None:
    """Replace an fp32 file by one with int8 weights."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    whole = onnx.load(path)
    del whole.graph.value_info[:]  # the recorded shapes of weights are wrong once they are transposed
    logging.disable(logging.WARNING)  # it advises a step that this model does not need
    try:
        quantize_dynamic(whole, path, per_channel=True, weight_type=QuantType.QInt8)
    finally:
        logging.disable(logging.NOTSET)


class ExportedModel:
    """A folder of an export, as a program without this project uses it."""

    def __init__(self, folder: Path) -> None:
        from onnxruntime import InferenceSession
        from tokenizers import Tokenizer

        self.description = read_json(folder / HEADS_DESCRIPTION)
        self.session = InferenceSession(folder / MODEL)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(self.description["max_length"])
        self.tokenizer.enable_padding()

    def outputs(self, task: str, columns: Columns) -> NDArray[np.float32]:
        """A task's output for every row, in their order: probabilities [rows, labels], or values [rows]."""
        words = [Template(("text",), tuple(words)) for words in self.description["tasks"][task]["words"]]
        rows, found = list(zip(*in_words(words, columns), strict=True)), []
        joint = self.description["tasks"][task]["input"] == "joint_pair"
        for first in range(0, len(rows), ROWS_PER_CALL):
            part = rows[first : first + ROWS_PER_CALL]
            encoded = self.tokenizer.encode_batch(part if joint else [text for row in part for text in row])
            inputs = {name: np.array([getattr(e, attribute) for e in encoded]) for name, attribute in INPUTS.items()}
            found.append(self.session.run([task], inputs)[0])
        return np.concatenate(found)

    def estimates(self, task: Task, columns: Columns) -> NDArray[np.float64]:
        """What `Task.estimate` gives of a task's output."""
        values = self.outputs(task.name, columns).astype(np.float64)
        if isinstance(task, Regression):
            low, high = task.bounds
            return (values - low) / (high - low)
        return values[:, 1] if isinstance(task, PairClassification) and task.log_odds else values


def _compare(model: MultitaskModel, folder: Path, rows: Mapping[str, Columns]) -> float:
    """The largest difference. Raises RuntimeError if it is too large."""
    exported, worst = ExportedModel(folder), 0.0
    for name, columns in rows.items():
        ours = estimate_columns(model, columns, [name])[name]
        found = float(np.abs(ours - exported.estimates(model.tasks[name], columns)).max())
        if not found <= ONNX_TOLERANCE:
            raise RuntimeError(f"ONNX Runtime's outputs for {name} differ by {found:.1e}; expected {ONNX_TOLERANCE}")
        worst = max(worst, found)
    return worst
