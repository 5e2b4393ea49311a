"""What the safety net trains on: a tiny random BERT, small data, tasks of all kinds, and the start of SentEval."""

import csv
import gzip
import json
import re
import shutil
from collections import Counter
from itertools import islice
from pathlib import Path

import pyarrow as pa
import torch
from pyarrow import parquet

SENTEVAL = (
    Path(__file__).parents[2] / "shared/data/senteval"
)  # next to the checkouts; without it, suites fail in both stores
LINES = {"sts-dev": 160, "train": 65, "dev": 33, "student": 17, "triplets": 33}
TAGS = ("order", "please", "not", "help")


def tiny_bert(data: Path, folder: Path, seed: int) -> None:
    """A checkpoint folder, written by transformers, with a vocabulary of the sample's words."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel

    text = "".join(path.read_text(encoding="utf-8").lower() for path in sorted(data.glob("*.csv")))
    characters = sorted({c for c in text if not c.isspace()})
    start = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *(f"##{c}" for c in characters)]
    words = [word for word, _ in Counter(re.findall(r"[a-z]{2,}", text)).most_common(600 - len(start))]
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(start + words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.1,  # with the usual 0.02, all sentences have nearly the same embedding
    )
    BertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(start + words) + "\n", encoding="utf-8")
    BertWordPieceTokenizer(str(folder / "vocab.txt")).save(str(folder / "tokenizer.json"))


def make(data: Path, folder: Path) -> dict[str, Path]:
    """Everything, by the names in braces of cases.toml."""
    names = ("tiny", "small", "senteval", "domains", "damaged")
    places = {name: folder / name for name in names} | {
        "folder": folder / "tasks",
        "tasks": folder / "tasks/tasks.toml",
    }
    folder.mkdir()
    tiny_bert(data / "sample", places["tiny"], 0)
    shutil.copytree(places["tiny"], places["damaged"])
    (places["damaged"] / "model.safetensors").write_bytes(b"no weights")
    small_data(data / "sample", places["small"])
    for path in sorted(SENTEVAL.rglob("*")):
        if path.is_file():
            _head(path, places["senteval"] / path.relative_to(SENTEVAL), 1200 if "TREC" in str(path) else 80)
    _head(places["small"] / "quora-dev.csv", places["senteval"] / "quora-dev.csv", 33)
    if SENTEVAL.is_dir():  # the course's pairs of which SentEval knows the genre
        _head(SENTEVAL.parent / "cs224n/sts-train.csv", places["domains"] / "sts-train.csv", 10**9)
        _head(SENTEVAL / "STS/STSBenchmark/sts-train.csv", places["senteval"] / "STS/STSBenchmark/sts-train.csv", 10**9)
    own_tasks(data, places["folder"])
    return places


def small_data(data: Path, folder: Path) -> None:
    """The first lines of every file of the sample, and pairs of paraphrases."""
    for path in sorted(data.iterdir()):
        _head(path, folder / path.name, LINES.get(path.stem, LINES.get(re.split(r"[-_]", path.stem)[-1], 64)))
    rows = csv.DictReader((data / "quora-train.csv").read_text().splitlines(), delimiter="\t")
    pairs = [f"{row['sentence1']}\t{row['sentence2']}\n" for row in rows if float(row["is_duplicate"])]
    (folder / "positive_pairs.tsv").write_text("sentence1\tsentence2\n" + "".join(pairs[:64]))


def _head(source: Path, target: Path, lines: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as file:
        target.write_bytes(b"".join(islice(file, lines)))


def own_tasks(data: Path, folder: Path) -> None:
    """A tasks file with all kinds of tasks, and its files in all formats."""
    folder.mkdir()
    shutil.copy(Path(__file__).parent / "tasks.toml", folder)
    quora, train, dev = (
        list(csv.DictReader((data / f"sample/{name}.csv").read_text().splitlines(), delimiter="\t"))
        for name in ("quora-train", "sts-train", "sts-dev")
    )
    messages = list(csv.DictReader((data / "own/messages.csv").read_text().splitlines()))[:200]
    texts = [message["message"] for message in messages]
    with (folder / "messages.csv").open("w") as file:
        writer = csv.DictWriter(file, ["message", "topic", "urgency", "split"])
        writer.writeheader()
        writer.writerows(m | {"split": ("test", "dev", "train", "train")[n % 4]} for n, m in enumerate(messages))
    tags = [f"{text}\t{'|'.join(tag for tag in TAGS if tag in text.lower())}\n" for text in texts]
    (folder / "tags.tsv").write_text("text\ttags\n" + "".join(tags))
    same = [{"a": r["sentence1"], "b": r["sentence2"], "same": int(float(r["is_duplicate"]))} for r in quora[:160]]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in same))
    for name, rows in (("train", train), ("dev", dev)):
        table = pa.Table.from_pylist([row | {"similarity": float(row["similarity"])} for row in rows[:120]])
        parquet.write_table(table.drop_columns([""]), folder / f"sts-{name}.parquet")
    near = [f'"{r["sentence1"]}";"{r["sentence2"]}";{r["similarity"]}\n' for r in train[120:240]]
    with gzip.open(folder / "cosine.csv.gz", "wt") as file:
        file.write("first;second;score\n" + "".join(near))
    tasks = (folder / "tasks.toml").read_text()
    for name, right, wrong in (
        ("kind", '"regression"', '"number"'),
        ("column", '"message"', '"massage"'),
        ("field", "metric", "metrics"),
        ("file", "pairs.jsonl", "pair.jsonl"),
        ("brackets", "[tasks.tags]", "[tasks.tags"),
        ("range", "[1, 5]", "[2, 5]"),
    ):
        (folder / f"wrong-{name}.toml").write_text(tasks.replace(right, wrong))
    (folder / "wrong.toml").write_text('epochs = "three"\nlearning_rat = 1\n')
    (folder / "latin.csv").write_bytes("sentence,topic\ncaf\xe9,x\n".encode("latin-1"))
