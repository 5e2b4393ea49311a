"""Mistakes that a user can make in a tasks file or its data, and the line that each gives."""

# ruff: noqa: E501 - each line is shown as it is printed

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field

TOPIC = '[tasks.topic]\nkind = "classification"\ntext = "question"\nlabel = "type"\n'
FILES = 'train = "train.csv"\ndev = "dev.csv"\n'
STARS = '[tasks.stars]\nkind = "regression"\ntext = "question"\nlabel = "stars"\nrange = [1, 5]\n' + FILES
QUESTIONS = "question,type\nWho is it?,HUM\nWhere is it?,LOC\nWho are you?,HUM\n"
JSON = '{"question": "Who?", "type": "HUM"}\n{"question": "Where?", "type": "LOC"}\n'
STARRED = "question,stars\nWho is it?,1\nWhere is it?,4.5\n"
FLAGS = "question,human,place\nWho is it?,1,0\nWhere is it?,0,1\n"
DEV = "question,type\nWhere are you?,LOC\n"


@dataclass(frozen=True)
class Mistake:
    """A mistake and the line that it gives.

    Args:
        what: the mistake, in words.
        line: what is printed after `error: `.
        tasks: the tasks file.
        files: further files, or other content of train.csv and dev.csv.
        file: name of the tasks file on the command line.
        finetune: options of `finetune`; None for `data check`.
    """

    what: str
    line: str
    tasks: str = TOPIC + FILES
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    file: str = "tasks.toml"
    finetune: tuple[str, ...] | None = None


MISTAKES = (
    Mistake("The tasks file does not exist", "task.toml: no such file", file="task.toml"),
    Mistake(
        "The tasks file's name does not end in .toml",
        "tasks.txt: expected the folder of the course's files, or a tasks file whose name ends in .toml",
        files={"tasks.txt": TOPIC + FILES},
        file="tasks.txt",
    ),
    Mistake(
        "A quote is not closed",
        "tasks.toml: not valid TOML (Illegal character '\\n' (at line 4, column 14))",
        tasks=TOPIC.replace('"type"', '"type') + FILES,
    ),
    Mistake(
        "Two tasks have one name",
        "tasks.toml: not valid TOML (Cannot declare ('tasks', 'topic') twice (at line 7, column 13))",
        tasks=TOPIC + FILES + TOPIC + FILES,
    ),
    Mistake(
        "`[task.topic]` instead of `[tasks.topic]`",
        "tasks.toml: expected tables [tasks.NAME] and nothing else",
        tasks=TOPIC.replace("tasks.", "task.") + FILES,
    ),
    Mistake(
        "A task's name has a blank",
        "tasks.toml: tasks.my topic: expected a name of letters, digits, _ and - other than overall and training",
        tasks=TOPIC.replace("topic", '"my topic"') + FILES,
    ),
    Mistake(
        "No kind",
        "tasks.toml: tasks.topic: kind is missing; expected one of: classification, pair_classification, multilabel, regression, pair_regression, cosine",
        tasks=TOPIC.replace('kind = "classification"', "") + FILES,
    ),
    Mistake(
        "An unknown kind",
        "tasks.toml: tasks.topic: kind is classifier; expected one of: classification, pair_classification, multilabel, regression, pair_regression, cosine",
        tasks=TOPIC.replace("classification", "classifier") + FILES,
    ),
    Mistake(
        "A misspelt field",
        "tasks.toml: tasks.topic: classification has no field lable; it has kind, file, split, text, label, train, dev, test, dev_share, metric, weight, id, separator, quotes, line_breaks, prediction_file, prediction_column, labels, class_weights, temperature",
        tasks=TOPIC.replace("label", "lable") + FILES,
    ),
    Mistake(
        "No label column",
        "tasks.toml: tasks.topic: label is missing",
        tasks=TOPIC.replace('label = "type"', "") + FILES,
    ),
    Mistake(
        "No training file",
        "tasks.toml: tasks.topic: train is missing; expected a file, or hf: and the name of a data set",
        tasks=TOPIC,
    ),
    Mistake(
        "A list of training files",
        'tasks.toml: tasks.topic: train is [\'a.csv\', \'b.csv\']; expected "FILE" or {file = "FILE", split = "NAME"}',
        tasks=TOPIC + 'train = ["a.csv", "b.csv"]',
    ),
    Mistake(
        "A pair with one text column",
        'tasks.toml: tasks.topic: text is "question"; pair_classification reads a list of two columns',
        tasks=TOPIC.replace("classification", "pair_classification") + FILES,
    ),
    Mistake(
        "A number instead of a text column",
        "tasks.toml: tasks.topic: text is 3; expected a list",
        tasks=TOPIC.replace('"question"', "3") + FILES,
    ),
    Mistake(
        "A weight in words",
        'tasks.toml: tasks.topic: weight is "high"; expected a number',
        tasks=TOPIC + FILES + 'weight = "high"',
    ),
    Mistake(
        "A negative weight",
        "tasks.toml: tasks.topic: weight is -1; expected above 0",
        tasks=TOPIC + FILES + "weight = -1",
    ),
    Mistake(
        "An unknown metric",
        "tasks.toml: tasks.topic: metric is \"f1\"; expected 'accuracy', 'macro_f1' or 'matthews'",
        tasks=TOPIC + FILES + 'metric = "f1"',
    ),
    Mistake(
        "A regression's metric for a classification",
        "tasks.toml: tasks.topic: metric is \"pearson\"; expected 'accuracy', 'macro_f1' or 'matthews'",
        tasks=TOPIC + FILES + 'metric = "pearson"',
    ),
    Mistake(
        "Labels as one text",
        'tasks.toml: tasks.topic: labels is "HUM, LOC"; expected a list',
        tasks=TOPIC + FILES + 'labels = "HUM, LOC"',
    ),
    Mistake(
        "One label only",
        'tasks.toml: tasks.topic: labels are "HUM"; expected two or more different names',
        tasks=TOPIC + FILES + 'labels = ["HUM"]',
    ),
    Mistake(
        "A label twice",
        'tasks.toml: tasks.topic: labels are 1, 2, "1.0"; expected two or more different names',
        tasks=TOPIC + FILES + 'labels = [1, 2, "1.0"]',
    ),
    Mistake(
        "Fewer class weights than labels",
        "tasks.toml: tasks.topic: class_weights are 0.5; expected one number for each of HUM, LOC",
        tasks=TOPIC + FILES + 'labels = ["HUM", "LOC"]\nclass_weights = [0.5]',
    ),
    Mistake(
        "Class weights without labels",
        "tasks.toml: tasks.topic: class_weights need labels, which say the order of the classes",
        tasks=TOPIC + FILES + "class_weights = [0.5, 2.0]",
    ),
    Mistake(
        "A dev share in percent",
        "tasks.toml: tasks.topic: dev_share is 10; expected below 1",
        tasks=TOPIC + 'train = "train.csv"\ndev_share = 10',
    ),
    Mistake(
        "A range with the higher number first",
        "tasks.toml: tasks.stars: range is [5.0, 1.0]; expected two numbers, the lower one first",
        tasks=STARS.replace("[1, 5]", "[5, 1]"),
    ),
    Mistake(
        "A range of three numbers",
        "tasks.toml: tasks.stars: range is [1, 3, 5]; Tuple should have at most 2 items after validation, not 3",
        tasks=STARS.replace("[1, 5]", "[1, 3, 5]"),
    ),
    Mistake(
        "A separator in words",
        'tasks.toml: tasks.topic: separator is "tab"; expected one character',
        tasks=TOPIC + FILES + 'separator = "tab"',
    ),
    Mistake(
        "Two label columns of a classification",
        'tasks.toml: tasks.topic: label is "type", "subtype"; classification reads one column',
        tasks=TOPIC.replace('"type"', '["type", "subtype"]') + FILES,
    ),
    Mistake(
        "A task that is not declared with `--tasks topik`",
        'unknown task "topik"; expected one of: topic',
        finetune=("--tasks", "topik"),
    ),
    Mistake(
        "The training file does not exist",
        "tasks.topic: training.csv: no such file",
        tasks=TOPIC + FILES.replace("train.csv", "training.csv"),
    ),
    Mistake(
        "A spreadsheet",
        "train.xlsx: unknown format; expected a name that ends in .csv, .tsv, .jsonl, .jsonlines, .parquet, .txt, or in one of them and .gz",
        tasks=TOPIC + FILES.replace("train.csv", "train.xlsx"),
        files={"train.xlsx": b"PK"},
    ),
    Mistake(
        "A column that the file lacks",
        "train.csv: no column sentence; the columns are question, type",
        tasks=TOPIC.replace("question", "sentence") + 'train = "train.csv"',
    ),
    Mistake(
        "Columns are separated by semicolons",
        'train.csv: no column question; the only column is "question;type"; set separator in the task\'s declaration',
        files={"train.csv": QUESTIONS.replace(",", ";")},
    ),
    Mistake(
        "A column twice in the header",
        "train.csv: column type occurs 2 times; the columns are question, type, type",
        files={"train.csv": "question,type,type\nWho is it?,HUM,HUM\n"},
    ),
    Mistake("An empty file", "train.csv: the file is empty; expected a header line and rows", files={"train.csv": ""}),
    Mistake(
        "A header without rows",
        "train.csv: no usable row; expected at least one with a text and a label",
        files={"train.csv": "question,type\n"},
    ),
    Mistake(
        "A sentence with a comma that is not quoted",
        "train.csv:5: the row has 3 fields; expected 2, as in the header (separated by commas)",
        files={"train.csv": QUESTIONS + "Who, if not you?,HUM\n"},
    ),
    Mistake(
        "A quoted sentence with a line break",
        "train.csv:5: a quoted field goes on until line 6; close its quote, or set line_breaks = true in the task's declaration",
        files={"train.csv": QUESTIONS + '"Who\nis it?",HUM\n'},
    ),
    Mistake(
        "A quote that is never closed",
        "train.csv:5: broken quoting (unexpected end of data); expected a field that starts with a quote to end with one, and quotes inside it to be doubled (or set quotes = false in the task's declaration)",
        files={"train.csv": QUESTIONS + '"Who is it?,HUM\nWhere is it?,LOC\n'},
    ),
    Mistake(
        "Text after a closing quote",
        "train.csv:5: broken quoting (',' expected after '\"'); expected a field that starts with a quote to end with one, and quotes inside it to be doubled (or set quotes = false in the task's declaration)",
        files={"train.csv": QUESTIONS + '"Who" is it?,HUM\n'},
    ),
    Mistake(
        "A file in Latin-1",
        "train.csv:2: byte 0xe9 at position 11 of the line is not UTF-8; save the file as UTF-8",
        files={"train.csv": QUESTIONS.replace("it", "caf\xe9").encode("latin-1")},
    ),
    Mistake(
        "A file in UTF-16",
        "train.csv:1: byte 0xff at position 1 of the line is not UTF-8; save the file as UTF-8",
        files={"train.csv": QUESTIONS.encode("utf-16")},
    ),
    Mistake(
        "A NUL byte",
        "train.csv:5: contains a NUL byte, so it is not text; save the file as UTF-8",
        files={"train.csv": QUESTIONS + "Who\0?,HUM\n"},
    ),
    Mistake(
        "Lines end with carriage returns only",
        "train.csv:1: a carriage return within a line; end lines with LF or CRLF",
        files={"train.csv": QUESTIONS.replace("\n", "\r")},
    ),
    Mistake(
        "A .gz file that is not compressed",
        "train.csv.gz: damaged or not a compressed file (Not a gzipped file (b'qu'))",
        tasks=TOPIC + FILES.replace("train.csv", "train.csv.gz"),
        files={"train.csv.gz": QUESTIONS},
    ),
    Mistake(
        "Half of a .gz file",
        "train.csv.gz: damaged or not a compressed file (Compressed file ended before the end-of-stream marker was reached)",
        tasks=TOPIC + FILES.replace("train.csv", "train.csv.gz"),
        files={"train.csv.gz": gzip.compress(QUESTIONS.encode(), mtime=0)[:40]},
    ),
    Mistake(
        "A .parquet file that is none",
        "train.parquet: damaged, or not of the format that its name says (Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file.)",
        tasks=TOPIC + FILES.replace("train.csv", "train.parquet"),
        files={"train.parquet": QUESTIONS},
    ),
    Mistake(
        "A line that is not JSON",
        "train.jsonl:3: not JSON (key must be a string at character 2)",
        tasks=TOPIC + FILES.replace("train.csv", "train.jsonl"),
        files={"train.jsonl": JSON + '{question: "Who?"}\n'},
    ),
    Mistake(
        "A list in one line of .jsonl",
        "train.jsonl:3: [] is not an object; expected one object a line",
        tasks=TOPIC + FILES.replace("train.csv", "train.jsonl"),
        files={"train.jsonl": JSON + "[]\n"},
    ),
    Mistake(
        "A text that is a number",
        "train.jsonl:3: question is 3; expected text",
        tasks=TOPIC + FILES.replace("train.csv", "train.jsonl"),
        files={"train.jsonl": JSON + '{"question": 3, "type": "HUM"}\n'},
    ),
    Mistake(
        "A label that is not among the declared ones",
        'train.csv:3: type is "LOC"; expected one of HUM, DESC',
        tasks=TOPIC + FILES + 'labels = ["HUM", "DESC"]',
        finetune=(),
    ),
    Mistake(
        "A label of the dev file that the training file lacks",
        'dev.csv:3: type is "DESC"; expected one of HUM, LOC',
        files={"dev.csv": DEV + "Why?,DESC\n"},
    ),
    Mistake(
        "A class that never occurs in training",
        "tasks.topic: no training row of train.csv has the label NUM",
        tasks=TOPIC + FILES + 'labels = ["HUM", "LOC", "NUM"]',
    ),
    Mistake(
        "All rows have one label",
        "tasks.topic: train.csv has only the label HUM; expected two or more",
        files={"train.csv": QUESTIONS.replace("LOC", "HUM"), "dev.csv": DEV.replace("LOC", "HUM")},
    ),
    Mistake(
        "Texts instead of labels",
        "tasks.topic: train.csv has 1,001 different labels in question; expected at most 1,000 (of numbers, declare a regression)",
        tasks=TOPIC.replace('"type"', '"question"') + 'train = "train.csv"',
        files={"train.csv": "question,type\n" + "".join(f"q{i},HUM\n" for i in range(1001))},
    ),
    Mistake(
        "A number with a decimal comma",
        'train.csv:4: stars is "4,5"; expected a number from 1 to 5 (decimal point, not comma)',
        tasks=STARS,
        files={"train.csv": STARRED + '"Who?","4,5"\n', "dev.csv": STARRED},
    ),
    Mistake(
        "A number outside the range",
        'train.csv:4: stars is "6"; expected a number from 1 to 5',
        tasks=STARS,
        files={"train.csv": STARRED + "Who?,6\n", "dev.csv": STARRED},
    ),
    Mistake(
        "All numbers are equal",
        "tasks.stars: all labels of train.csv are 3; nothing to learn",
        tasks=STARS.replace("range = [1, 5]\n", ""),
        files={"train.csv": "question,stars\nWho?,3\nWhy?,3\n", "dev.csv": STARRED},
    ),
    Mistake(
        "A label's column with other values than 0 and 1",
        'train.csv:4: human is "2"; expected 0 or 1',
        tasks=TOPIC.replace("classification", "multilabel").replace('"type"', '["human", "place"]') + FILES,
        files={"train.csv": FLAGS + "Who is here?,2,0\n", "dev.csv": FLAGS},
    ),
    Mistake(
        "An id twice",
        'train.csv:4: id "1" is already on line 2; expected each id once',
        tasks=TOPIC + FILES + 'id = "id"',
        files={
            "train.csv": "id,question,type\n1,Who?,HUM\n2,Where?,LOC\n1,Why?,LOC\n",
            "dev.csv": "id,question,type\n1,Where to?,LOC\n",
        },
    ),
    Mistake(
        "One file for all splits without a column `split`",
        "train.csv: no column split; the columns are question, type",
        tasks=TOPIC + 'file = "train.csv"',
        finetune=(),
    ),
    Mistake(
        "One file for all splits without rows of `dev`",
        'train.csv: no row has "dev" in column split, only train',
        tasks=TOPIC + 'file = "train.csv"',
        files={"train.csv": "question,type,split\nWho?,HUM,train\nWhere?,LOC,train\n"},
        finetune=(),
    ),
    Mistake(
        "Too few rows to hold some out",
        "train.csv: 3 different rows are too few to hold out a share of 0.1; declare a development file",
        tasks=TOPIC + 'train = "train.csv"',
        finetune=(),
    ),
    Mistake(
        "A field of another kind",
        "tasks.toml: tasks.topic: classification has no field range; it has kind, file, split, text, label, train, dev, test, dev_share, metric, weight, id, separator, quotes, line_breaks, prediction_file, prediction_column, labels, class_weights, temperature",
        tasks=TOPIC + FILES + "range = [0, 1]",
    ),
    Mistake(
        "A negative class weight",
        "tasks.toml: tasks.topic: class_weights.1 is -1; expected above 0",
        tasks=TOPIC + FILES + 'labels = ["HUM", "LOC"]\nclass_weights = [1, -1]',
    ),
)

REFUSED_BY_FINETUNE = (
    ("--epochs is 0; expected at least 1", "--epochs 0"),
    ('--epochs is "nan"; expected a whole number', "--epochs nan"),
    ("--epoch-size is -1; expected at least 1", "--epoch-size -1"),
    ("--seed is 18446744073709551616; expected at most", "--seed 18446744073709551616"),
    ("--learning-rate is NaN; expected a finite number", "--learning-rate nan"),
    ("--learning-rate is Infinity; expected a finite number", "--learning-rate inf"),
    ("head_hidden_size is 0; expected at least 1", "--set head_hidden_size=0"),
    (
        "--task-weights are (1.0, 2.0); expected 3 numbers, one for each task",
        "--tasks sentiment paraphrase similarity --task-weights 1 2",
    ),
    ("--tasks are sentiment, sentiment; expected each named once", "--tasks sentiment --untrained sentiment"),
    ("--max-length is 65; this encoder takes 3 to 64 tokens", "--max-length 65"),
    ("sharing=shared needs pairs=embeddings", "--set sharing=shared pairs=joint"),
    ("--name a/b: expected letters, digits", "--name a/b"),
    ("/no/such/folder/ids-sst-train.csv: no such file", "--data /no/such/folder"),
    ("/no/such/weights: no such folder", "--start /no/such/weights"),
    ("is a local checkpoint and has no revision 'main'", "--revision main"),
    ("--precision: invalid choice: 'int8'", "--precision int8"),
    ("--clip: no such option of `multitask finetune`; use --set clip=VALUE", "--clip 1"),
    ("--set: clap: no such setting of `multitask finetune`; did you mean clip?", "--set clap=1"),
    ("--set clip: expected NAME=VALUE", "--set clip"),
    ("--epochs: expected one argument", "--epochs"),
    ("--epoch: no such option of `multitask finetune`; did you mean --epochs?", "--epoch 3"),
    ("--colour: no such option of `multitask finetune`; --help-all shows all options", "--colour red"),
)
"""What is printed, and options of `finetune` that are wrong."""

REFUSED = (
    ("unknown command fintune; did you mean finetune?", "fintune"),
    ("unknown command 7 (`multitask --help` lists all)", "7"),
    ("unknown command chek; did you mean check?", "data chek"),
    ("expected either a data folder or --tasks-file", "data check"),
    ("--model is missing", "evaluate"),
    ("--output is missing", "export --model all-minilm-l6-v2"),
    ("--seed is 4294967296; expected below 4294967296", "evaluate --model m --seed 4294967296"),
    ("--precision int8 is for suites of frozen embeddings", "evaluate --model m --precision int8"),
    ("--pooling is for suites of frozen embeddings", "evaluate --model m --pooling mean"),
    ("--suite sts needs --data, SentEval's data folder", "evaluate --model m --suite sts"),
    ("runs/finetune-typo: no such folder; expected a run", "evaluate --model runs/finetune-typo"),
    ("runs/finetune-typo: no such folder; expected a run", "predict --model runs/finetune-typo"),
    ("e.txt: expected a name that ends in .npy", "embed text.txt e.txt"),
    ("--batches is -1; expected at least 1", "probe --model m --batches -1"),
    (
        "--objective: infonce: temperature is 0; expected a number above 0",
        "probe --model m --objective infonce:temperature=0",
    ),
    (
        '--objective: vicreg has no parameter "tau"; it takes uniformity_weight: a number',
        "pretrain --objective vicreg:tau=1",
    ),
    ('unknown objective "infonse"; expected one of: align_uniform', "fuse --help-objective infonse"),
    ("--seeds is 0; expected at least 1", "experiments plan sample --seeds 0"),
    ("PRESET: invalid choice: 'large'", "experiments plan large"),
    ("--print-completion takes one of: bash, zsh", "--print-completion cmd"),
)
"""What is printed, and command lines that are wrong."""

SETTINGS = (
    ("not valid TOML", "epochs = "),
    ("epoch: no such setting of `multitask finetune`; did you mean epochs?", "epoch = 3"),
    ("heads.epochs: no such setting of `multitask finetune`", "[heads]\nepochs = 3"),
    ("colour.red: no such setting", "[colour]\nred = 3"),
    ('epochs is "3"; expected a whole number', 'epochs = "3"'),
    ("epochs is true; expected a whole number", "epochs = true"),
    ("epochs is NaN; expected a whole number", "epochs = nan"),
    ("residual is 1; expected a boolean", "residual = 1"),
    ('task_weights.0 is "a"; expected a number', "task_weights = ['a']"),
    ("sharing is \"all\"; expected 'separate', 'shared_first_layer', 'shared' or 'none'", "sharing = 'all'"),
    ("dropout is 1; expected at most 0.99", "[heads]\ndropout = 1"),
    ("dropout is given twice, at the top level and in a table", "dropout = 0.1\n[heads]\ndropout = 0.2"),
    ("tasks are a, a; expected each named once", "tasks = ['a', 'a']"),
)
"""What is printed after the file's name, and settings files of `finetune` that are wrong."""
