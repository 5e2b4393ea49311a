"""Recipes of the papers' models: expressions over stages. Equal ones are one computation, whichever row has them."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from multitask.base.runs import Weights
from multitask.evaluation.suite_sets import SETS
from multitask.experiments.table_definitions import Experiment, GridLine, Node, StudyTable, models_of
from multitask.stages.settings import FinetuneConfig, FuseConfig
from multitask.stages.settings_of_pretraining import MlmConfig, PretrainConfig
from multitask.stages.settings_without_training import EnsembleConfig, PruneConfig, SuitesConfig
from multitask.training.settings import ObjectiveConfig
from studies.gradient_paradigm.stages import SimulationConfig

STS, TRANSFER, RETRIEVAL = "STS", "Transfer", "Retrieval"
SUITE_COLUMNS = {"sts": STS, "transfer": TRANSFER, "retrieval": RETRIEVAL}
GROUPS = {SUITE_COLUMNS[suite]: tuple(entry.name for entry in sets) for suite, sets in SETS.items()}


@dataclass(frozen=True)
class Recipes:
    """A preset's start weights, data and settings, and the recipes that tables are made of."""

    start: Weights  # weights that every chain begins with
    data: Path
    multitask: FinetuneConfig  # supervised fine-tuning on the three tasks with the report's heads (sections 4.2, 5.3)
    # contrastive pre-training on the three given sets, supervised on Quora (sections 4.1, 5.3)
    supervised: PretrainConfig
    fusion: FuseConfig  # Table 1's other rows have its settings and rows, too
    reviews: FinetuneConfig  # fine-tuning on long reviews
    # masked language modelling that turns the start weights into an encoder that is not tuned contrastively; None if
    # they are one already
    masked: MlmConfig | None
    views: PretrainConfig  # contrastive training on unlabelled sentences
    pruning: PruneConfig  # which parts to remove first; tables vary it
    recovery: PretrainConfig  # contrastive training of what pruning has left, and of its whole counterpart
    # settings of losses that differ from those of the tables, by the loss's key
    losses: Mapping[str, ObjectiveConfig] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)  # learning rates of losses, where they differ
    from_untuned: bool = False  # whether the multi-task report's models start from `untuned`
    simulation: SimulationConfig = field(default_factory=SimulationConfig)
    suites: SuitesConfig = field(default_factory=SuitesConfig)  # what frozen embeddings are scored on
    suites_data: Path = Path("data/senteval")

    def changed(
        self,
        epochs: int | None = None,
        epoch_size: int | None = None,
        negative_pairs: Literal["bounded", "literal", "left_out"] | None = None,
    ) -> "Recipes":
        """These recipes at another size, or with another loss of Quora's negative pairs.

        Args:
            epochs: of every fine-tuning and of all trainings of Table 1. Tables compare the length of pre-trainings.
            epoch_size: examples of each task or source in an epoch.
            negative_pairs: as `pretrain` takes it.
        """

        def sized(config: FinetuneConfig) -> FinetuneConfig:
            size = epoch_size or config.epoch_size
            return replace(config, epochs=epochs or config.epochs, epoch_size=size)

        fusion, supervised = sized(self.fusion.finetune), self.supervised
        return replace(
            self,
            multitask=sized(self.multitask),
            fusion=replace(self.fusion, finetune=replace(fusion, train_limit=epoch_size or fusion.train_limit)),
            reviews=sized(self.reviews),
            supervised=replace(
                supervised,
                train_limit=epoch_size or supervised.train_limit,
                negative_pairs=negative_pairs or supervised.negative_pairs,
            ),
        )

    @property
    def untuned(self) -> Node | Weights:
        """An encoder that is not tuned contrastively."""
        return self.start if self.masked is None else self.mlm(self.start, self.masked)

    @property
    def base(self) -> Node | Weights:
        """What the models of the multi-task report start from."""
        return self.untuned if self.from_untuned else self.start

    @property
    def unsupervised(self) -> PretrainConfig:
        """Contrastive training on the sentences of fusion training, without labels, as fusion trains on them."""
        fusion = self.fusion.finetune
        same = ("epochs", "batch_size", "train_limit", "max_length", "pooling", "optimizer")
        return PretrainConfig(
            sources=(*fusion.tasks, *self.fusion.unlabelled),
            **vars(self.fusion.contrastive),
            **{name: getattr(fusion, name) for name in same},
        )

    def mlm(self, start: Weights, config: MlmConfig) -> Node:
        """Masked language modelling."""
        return Node("mlm", config, (start,), self.data)

    def finetune(self, start: Node | Weights, config: FinetuneConfig | None = None) -> Node:
        """Fine-tuning with new heads, whatever the start; on the three tasks when no configuration is given."""
        return Node("finetune", replace(config or self.multitask, new_heads=True), (start,), self.data)

    def pretrain(self, start: Node | Weights, config: PretrainConfig) -> Node:
        """Contrastive pre-training."""
        return Node("pretrain", config, (start,), self.data)

    def self_supervised(self, objective: ObjectiveConfig, start: Node | Weights | None = None) -> Node:
        """Pre-training on dropout views under an objective, from an encoder that is not tuned contrastively."""
        return self.pretrain(start or self.untuned, replace(self.views, objective=objective))

    def fuse(self, start: Node | Weights) -> Node:
        """Fusion training with new heads, whatever the start."""
        config = replace(self.fusion, finetune=replace(self.fusion.finetune, new_heads=True))
        return Node("fuse", config, (start,), self.data)

    def prune(self, model: Node | Weights, config: PruneConfig, rewind_to: Node | Weights | None = None) -> Node:
        """Pruning of a model; what is left has its own weights, or those of an earlier state of its training."""
        return Node("prune", config, (model,) if rewind_to is None else (model, rewind_to), self.data)

    def ensemble(self, *models: Node) -> Node:
        """Of each task the best of several models."""
        return Node("ensemble", EnsembleConfig(), models, self.data)

    def on_suites(self, model: Node) -> Node:
        """The scores of a model's frozen embeddings on SentEval's tasks."""
        return Node("suites", self.suites, (model,), self.suites_data)

    def simulations(self) -> Node:
        """Simulated embeddings, which need neither model nor data."""
        return Node("simulate", self.simulation, (), self.data)

    def given(self, rate: int = 2, epochs: int | None = None, start: Node | None = None) -> Node:
        """Pre-training on the three given sets ("3 given"): in every epoch Quora with labels, then the others without.

        The learning rate is a multiple of the default one: Table 10's best is the double, and its row is also that of
        Tables 2 and 5. Epochs are the preset's where a table does not say otherwise.
        """
        return self.pretrain(start or self.base, self._trained(self.supervised, rate, epochs))

    def nli(self, epochs: int = 3, start: Node | None = None) -> Node:
        """Pre-training on the NLI triplets, for section 5.3's three epochs where a table does not say otherwise.

        The rate is that of `given`: "all comparisons in every single table differ only by the highlighted
        characteristics" (section 6), and Table 5 compares the two.
        """
        config = replace(self._trained(self.supervised, 2, epochs), sources=("nli",), negative_pairs="bounded")
        return self.pretrain(start or self.base, config)

    def quora(self, config: PretrainConfig) -> Node:
        """Pre-training on Quora alone, otherwise as `given` at the default learning rate."""
        return self.pretrain(self.base, replace(self._trained(config, 1), sources=("quora",)))

    @staticmethod
    def _trained(config: PretrainConfig, rate: int, epochs: int | None = None) -> PretrainConfig:
        optimizer = replace(config.optimizer, learning_rate=rate * config.optimizer.learning_rate)
        return replace(config, epochs=epochs or config.epochs, optimizer=optimizer)


def suites_experiment(recipes: Recipes, key: str, title: str, note: str, lines: Iterable[GridLine]) -> Experiment:
    """A table of scores on SentEval's tasks, run on request."""
    lines = tuple(lines)
    groups = {SUITE_COLUMNS[suite]: GROUPS[SUITE_COLUMNS[suite]] for suite in recipes.suites.suites}
    limit = recipes.suites.limit
    table = StudyTable(
        key,
        title,
        f"{note} Scores are SentEval's, of frozen embeddings: Spearman correlation of seven similarity tasks, accuracy "
        "of seven transfer tasks, and their means. Retrieval is nDCG at 10 among the sentences of Quora's and SICK's "
        f"pairs.{f' At most about {limit:,} rows of each task are used.' if limit else ''}",
        tuple(row for row, _ in lines),
        columns=tuple(name for names in groups.values() for name in names),
        groups=groups,
    )
    return Experiment(table, models_of(lines), recipes.on_suites, on_request=True)


def read_tables(module: str) -> dict[str, dict[str, Any]]:
    """The tables that `tables.toml` next to a module's `__file__` describes, by key, as arguments of `experiment`."""
    text = Path(module).with_name("tables.toml").read_text(encoding="utf-8")
    return {key: {"key": key, **table} for key, table in tomllib.loads(text).items()}
