"""How much a stage has to do, roughly: sentences that go through the encoder. For estimates of time only."""

from functools import cache
from pathlib import Path

from multitask.data.readers import PAIRS_FILE, TRIPLETS_FILE
from multitask.data.schema import Split
from multitask.evaluation.senteval_files import SETS
from multitask.stages.ensemble import EnsembleConfig
from multitask.stages.evaluate import SuitesConfig
from multitask.stages.finetune import FinetuneConfig
from multitask.stages.fuse import FuseConfig
from multitask.stages.mlm import MlmConfig
from multitask.stages.pretrain import PretrainConfig
from multitask.stages.prune import PruneConfig
from multitask.tasks.kinds import TASKS
from multitask.tasks.training_sentences import text_file
from studies.engine.recipes import Node
from studies.engine.record import MAIN_TASKS
from studies.gradient_paradigm.simulation_config import SimulationConfig

FORWARD_SHARE = 1 / 3  # of the cost of a training step is its forward pass


def work(node: Node) -> float:
    """Sentences that a stage trains on in all its epochs; what it only evaluates counts a third."""
    match node.config:
        case FuseConfig() as config:
            sources = (*config.tasks, *config.unlabelled)
            contrastive = sum(_source(name, config.quora_share, config.train_limit, node.data) for name in sources)
            return config.epochs * (_training(config, node.data) + contrastive + _dev(config, node.data))
        case FinetuneConfig() as config:
            return config.epochs * (_training(config, node.data) + _dev(config, node.data))
        case PretrainConfig() as config:
            sources = config.sources
            return config.epochs * sum(_source(n, config.quora_share, config.train_limit, node.data) for n in sources)
        case MlmConfig() as config:
            return config.epochs * sum(_source(n, 1.0, config.train_limit, node.data) / 2 for n in config.sources)
        case PruneConfig() as config:
            task = config.task if config.score == "task" else "similarity"
            rows = _rows(node.data, task, "train") if config.score in ("align_uniform", "task") else 0
            return config.rounds * _sentences(task) * min(rows, config.train_limit or rows)
        case EnsembleConfig():  # dev sets by every member, test sets, about as large, by the best of each task
            of_members = [_evaluation(parent) for parent in node.needs]
            return sum(of_members) + max(of_members)
        case SimulationConfig() as config:  # no sentences; its own unit will do, as it is compared with itself alone
            return config.grid * config.batches * config.batch_size
        case SuitesConfig() as config:  # some lines are gold scores or headers; it is an estimate
            sets = [entry for suite in config.suites for entry in SETS[suite]]
            sizes = [sum(_lines(path) for path in entry.paths(node.data)) for entry in sets]
            return FORWARD_SHARE * sum(min(size, 2 * (config.limit or size)) for size in sizes)
        case None:
            return sum(_evaluation(parent) for parent in node.needs)


def _training(config: FinetuneConfig, data: Path) -> float:
    sizes = {task: _rows(data, task, "train") for task in config.tasks}
    sizes = {task: min(size, config.train_limit or size) for task, size in sizes.items()}
    whole = config.scheduler in ("epoch_round_robin", "single")  # others cut every set to the smallest one's length
    least = min(sizes.values())
    return sum(_sentences(t) * (config.epoch_size or (size if whole else least)) for t, size in sizes.items())


def _dev(config: FinetuneConfig, data: Path) -> float:
    tasks = (*config.tasks, *config.untrained)
    return FORWARD_SHARE * sum(_sentences(task) * _rows(data, task, "dev") for task in tasks)


def _evaluation(model: Node) -> float:
    """Of a pre-training it is the heads of the fine-tuning that it started from that are scored."""
    config = model.config
    if isinstance(config, FinetuneConfig):
        return _dev(config, model.data)
    return FORWARD_SHARE * sum(_sentences(task) * _rows(model.data, task, "dev") for task in MAIN_TASKS)


def _source(name: str, share: float, limit: int | None, data: Path) -> float:
    """Sentences of a contrastive source in an epoch: two views of each row, three of a triplet."""
    files = {"nli": (TRIPLETS_FILE, 3), "pairs": (PAIRS_FILE, 2)}
    if path := text_file(name, data):
        rows, columns = _lines(path), 2
    elif name in files:
        file, columns = files[name]
        rows = _lines(data / file)
    else:
        task = "paraphrase" if name == "quora" else name
        rows, columns = _rows(data, task, "train") * (1 if name == "quora" else _sentences(task)), 2
    return columns * min(rows, limit or rows) * (share if name in ("quora", "paraphrase") else 1.0)


def _sentences(task: str) -> int:
    return 2 if TASKS[task].kind.pair else 1


def _rows(data: Path, task: str, split: Split) -> int:
    return max(_lines(TASKS[task].schema.path(data, split)) - 1, 0)


@cache
def _lines(path: Path) -> int:
    """Lines of a file; 0 of one that is not there, which the stage that needs it says better."""
    return path.read_bytes().count(b"\n") if path.is_file() else 0
