"""The commands' options, as dataclasses: what `--help` shows. Imports nothing heavy; `cli.py` runs them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from multitask.cli.types import HelpObjective
from multitask.models.config import Pooling
from multitask.objectives.config import ObjectiveConfig
from multitask.runtime.options import Device, Precision, RunOptions
from multitask.stages.ensemble import EnsembleConfig, Kept
from multitask.stages.finetune import FinetuneConfig
from multitask.stages.fuse import FuseConfig
from multitask.stages.mlm import MlmConfig
from multitask.stages.pretrain import PretrainConfig
from multitask.stages.prune import PruneConfig
from studies.engine.command_options import Experiments
from studies.engine.presets import PresetName
from studies.gradient_paradigm.simulate import SimulationConfig


@dataclass(frozen=True)
class Check:
    """Check a data folder: rows, labels, lengths, duplicates, overlap between splits. Exit code 2 on errors."""

    folder: tyro.conf.Positional[Path]


@dataclass(frozen=True)
class Fetch:
    """Download the published data sets, verified, into a folder."""

    folder: Path = Path("data/real")
    sets: tuple[str, ...] | None = None
    """Names of data sets; all when left out."""


@dataclass(frozen=True)
class Domains:
    """Write the captions and the news of the course's similarity training file into files of their own.

    Which is which is known from SentEval's copy of STS Benchmark.
    """

    folder: tyro.conf.Positional[Path]
    """Data folder with sts-train.csv."""
    suites_data: Path = Path("data/senteval")
    """SentEval's data folder."""


@dataclass(frozen=True)
class Data:
    """Check or fetch data, or take its domains apart."""

    action: (
        Annotated[Check, tyro.conf.subcommand("check")]
        | Annotated[Fetch, tyro.conf.subcommand("fetch")]
        | Annotated[Domains, tyro.conf.subcommand("domains")]
    )


@dataclass(frozen=True)
class Finetune:
    """Fine-tune an encoder on the tasks; the artefact keeps the best models on the dev sets."""

    start: str = "all-minilm-l6-v2"
    """Start weights: all-minilm-l6-v2, a folder, a run, or a hub id such as bert-base-uncased."""
    revision: str | None = None
    """Revision of a hub id."""
    data: Path = Path("data/sample")
    """Folder with the tasks' files."""
    config: tyro.conf.OmitArgPrefixes[FinetuneConfig] = field(default_factory=FinetuneConfig)
    options: tyro.conf.OmitArgPrefixes[RunOptions] = field(default_factory=RunOptions)


@dataclass(frozen=True)
class Pretrain:
    """Pre-train an encoder contrastively; the artefact is a start for finetune."""

    start: str = "all-minilm-l6-v2"
    """Start weights: all-minilm-l6-v2, a folder, a run, or a hub id such as bert-base-uncased."""
    revision: str | None = None
    """Revision of a hub id."""
    data: Path = Path("data/sample")
    """Folder with the sources' files."""
    config: tyro.conf.OmitArgPrefixes[PretrainConfig] = field(default_factory=PretrainConfig)
    help_objective: HelpObjective = None
    options: tyro.conf.OmitArgPrefixes[RunOptions] = field(default_factory=RunOptions)


@dataclass(frozen=True)
class Mlm:
    """Train an encoder to predict masked words, further or from scratch; the artefact is a start for other stages."""

    start: str = "all-minilm-l6-v2"
    """Start weights: all-minilm-l6-v2, a folder, a run, or a hub id such as bert-base-uncased."""
    revision: str | None = None
    """Revision of a hub id."""
    data: Path = Path("data/sample")
    """Folder with the sources' files."""
    config: tyro.conf.OmitArgPrefixes[MlmConfig] = field(default_factory=MlmConfig)
    options: tyro.conf.OmitArgPrefixes[RunOptions] = field(default_factory=RunOptions)


@dataclass(frozen=True)
class Fuse:
    """Fusion training: each batch against its labels, then its sentences against the contrastive objective."""

    start: str = "all-minilm-l6-v2"
    """Start weights: all-minilm-l6-v2, a folder, a run, or a hub id such as bert-base-uncased."""
    revision: str | None = None
    """Revision of a hub id."""
    data: Path = Path("data/sample")
    """Folder with the sources' files."""
    config: tyro.conf.OmitArgPrefixes[FuseConfig] = field(default_factory=FuseConfig)
    help_objective: HelpObjective = None
    options: tyro.conf.OmitArgPrefixes[RunOptions] = field(default_factory=RunOptions)


@dataclass(frozen=True)
class Prune:
    """Remove the attention heads and feed-forward neurons that matter least; the artefact is a smaller start."""

    start: str = "all-minilm-l6-v2"
    """Start weights: all-minilm-l6-v2, a folder, a run, or a hub id such as bert-base-uncased."""
    revision: str | None = None
    """Revision of a hub id."""
    rewind_to: str | None = None
    """Take what is left from these weights, an earlier state of the start's training (what it started from, or a
    shorter run of it); the start's own when left out."""
    rewind_revision: str | None = None
    """Revision of a hub id to rewind to."""
    data: Path = Path("data/sample")
    """Folder with the tasks' files."""
    config: tyro.conf.OmitArgPrefixes[PruneConfig] = field(default_factory=PruneConfig)
    runs: Path = Path("runs")
    """Folder of all artefacts."""
    name: str = "run"
    """A label in the artefact's folder name."""
    device: Device = "auto"


@dataclass(frozen=True)
class Evaluate:
    """Score a model on the tasks' labelled sets (an encoder without heads: pairs, by cosine) or on a suite of SentEval.

    Writes JSON, of a suite also Markdown and LaTeX.
    """

    model: str
    """A run's folder, a model folder, all-minilm-l6-v2 or a hub id."""
    revision: str | None = None
    """Revision of a hub id."""
    suite: Literal["multitask", "sts", "transfer", "geometry"] = "multitask"
    """The tasks' own sets; or of frozen embeddings seven similarity tasks by cosine (Spearman correlation), seven
    transfer tasks by logistic regression (accuracy), or the geometry of the similarity tasks' sentences."""
    data: Path = Path("data/sample")
    """Folder with the tasks' files, or for the other suites SentEval's data folder (with STS, SICK, MR and so on)."""
    split: Literal["train", "dev"] = "dev"
    """Of the multitask suite."""
    best_on: str | None = None
    """Which of a run's kept models: best on `overall` (when left out) or on a task."""
    pooling: Pooling = "auto"
    """Of the other suites: sentence embedding from the first token or the mean; `auto` as the model was tuned."""
    cache: bool = True
    """Of the other suites: keep embeddings in the user's cache folder, or $MULTITASK_CACHE, for the next evaluation."""
    seed: int = 0
    """Of the transfer tasks' folds."""
    output: Path | None = None
    """JSON file; when left out evaluation-{split or suite}.json in the model's folder, and of a suite for a model that
    is no folder in evaluations/{model}."""
    device: Device = "auto"
    precision: Precision = "auto"


@dataclass(frozen=True)
class Predict:
    """Write the course's prediction files for dev and test, in file order."""

    model: Path
    """A run's folder or a model folder."""
    data: Path = Path("data/sample")
    output: Path = Path("predictions")
    best_on: str | None = None
    """Which of a run's kept models: best on `overall` (when left out) or on a task."""
    device: Device = "auto"
    precision: Precision = "auto"


@dataclass(frozen=True)
class Ensemble:
    """Combine fine-tuned models; prints dev scores, and the course's prediction files are in the artefact."""

    models: tyro.conf.Positional[tuple[Path, ...]]
    """Runs' folders or model folders; the first named win ties."""
    kept: Kept = "leading"
    """Of a run take its leading model, or all that it keeps (best overall and best on each task)."""
    data: Path = Path("data/sample")
    """Folder with the tasks' files."""
    config: tyro.conf.OmitArgPrefixes[EnsembleConfig] = field(default_factory=EnsembleConfig)
    runs: Path = Path("runs")
    """Folder of all artefacts."""
    name: str = "run"
    """A label in the artefact's folder name."""
    device: Device = "auto"
    precision: Precision = "auto"


@dataclass(frozen=True)
class Simulate:
    """Simulate gradients of random embeddings and check conjectures on them; prints what the papers' claims come to."""

    config: tyro.conf.OmitArgPrefixes[SimulationConfig] = field(default_factory=SimulationConfig)
    runs: Path = Path("runs")
    """Folder of all artefacts; figures are written into the artefact's."""
    name: str = "run"
    """A label in the artefact's folder name."""


@dataclass(frozen=True)
class Embed:
    """Write embeddings of a text file, one sentence a line, to a .npy array [sentences, hidden] fp32."""

    text: tyro.conf.Positional[Path]
    output: tyro.conf.Positional[Path]
    model: str = "all-minilm-l6-v2"
    """A run's folder, a model folder, all-minilm-l6-v2 or a hub id."""
    revision: str | None = None
    pooling: Pooling = "auto"
    normalize: bool = False
    """Scale every embedding to length 1."""
    device: Device = "auto"
    precision: Precision = "auto"


@dataclass(frozen=True)
class Probe:
    """Show the gradient that an objective gives a model's embeddings: dissipation, weights of negatives, ratio."""

    model: tyro.conf.Positional[str] = "all-minilm-l6-v2"
    """A run's folder, a model folder, all-minilm-l6-v2 or a hub id."""
    revision: str | None = None
    """Revision of a hub id."""
    data: Path = Path("data/sample")
    source: str = "unlabelled"
    """Dropout views of `unlabelled` sentences, of another text file's (its name, ending in .txt) or of a task's
    training sentences, or `similar_pairs`: the pairs of the similarity dev set with a gold similarity of at least 4."""
    objective: ObjectiveConfig = ObjectiveConfig()
    """Loss on sentence pairs, e.g. vicreg:dissipation=0.3,weight=0.05. See --help-objective."""
    help_objective: HelpObjective = None
    batch_size: int = 64
    batches: int = 10
    """At most so many batches."""
    seed: int = 0
    output: Path | None = None
    """JSON file with the values of every batch; none when left out."""
    device: Device = "auto"
    precision: Precision = "auto"


@dataclass(frozen=True)
class Export:
    """Write an encoder and its tokenizer as a folder that other libraries load; heads of tasks stay behind."""

    model: tyro.conf.Positional[str]
    """A run's folder, a model folder, all-minilm-l6-v2 or a hub id."""
    output: tyro.conf.Positional[Path]
    """Folder to write; takes the place of one that is there."""
    to: Literal["transformers", "sentence-transformers", "onnx"] = "transformers"
    """`transformers`: for AutoModel and AutoTokenizer; `sentence-transformers`: with pooling and a model card, for
    SentenceTransformer; `onnx`: model.onnx from token ids to embeddings, checked with ONNX Runtime."""
    revision: str | None = None
    """Revision of a hub id."""
    pooling: Pooling = "auto"
    """Not for transformers, whose models have no pooling."""
    normalize: bool = False
    """Scale every embedding to length 1; likewise."""


@dataclass(frozen=True)
class Report:
    """Write the report of a preset that was run, from the store alone."""

    preset: tyro.conf.Positional[PresetName] = "sample"
    runs: Path = Path("runs")
    """Folder of all artefacts."""
    report: Path = Path("report")
    """Folder of the report."""


Command = (
    Annotated[Data, tyro.conf.subcommand("data")]
    | Annotated[Pretrain, tyro.conf.subcommand("pretrain")]
    | Annotated[Mlm, tyro.conf.subcommand("mlm")]
    | Annotated[Finetune, tyro.conf.subcommand("finetune")]
    | Annotated[Fuse, tyro.conf.subcommand("fuse")]
    | Annotated[Prune, tyro.conf.subcommand("prune")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Predict, tyro.conf.subcommand("predict")]
    | Annotated[Ensemble, tyro.conf.subcommand("ensemble")]
    | Annotated[Simulate, tyro.conf.subcommand("simulate")]
    | Annotated[Embed, tyro.conf.subcommand("embed")]
    | Annotated[Probe, tyro.conf.subcommand("probe")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Experiments, tyro.conf.subcommand("experiments")]
    | Annotated[Report, tyro.conf.subcommand("report")]
)
