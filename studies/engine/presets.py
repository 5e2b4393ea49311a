"""Presets: start weights, data and size. All presets have the same tables. Imports nothing heavy."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from minbert.errors import InputError
from multitask.base.runs import Weights
from multitask.experiments.table_definitions import Experiment, Preset, notes_on_start
from multitask.models.settings import HeadsConfig
from multitask.stages.settings import REPORT_SETTINGS, SUPERVISED, FinetuneConfig, FuseConfig
from multitask.stages.settings_of_pretraining import MlmConfig, PretrainConfig
from multitask.stages.settings_without_training import PruneConfig, SuitesConfig
from multitask.tasks import MAIN_TASKS
from multitask.training.settings import ContrastiveConfig, ObjectiveConfig, OptimizerConfig
from studies.engine.recipes import Recipes
from studies.study import all_experiments, choose_tables, study_of_tables

STUDIES = "Studies"  # heading of our commands in the list of all

PresetName = Literal["sample", "small", "medium", "best", "best-base", "paper", "paradigm", "paradigm-roberta"]
ReportName = Literal[PresetName, "tasks"]  # what a report is about: a preset, or the tasks of a tasks file

GIVEN = ("quora", "sentiment", "similarity")  # Quora with labels, then dropout views of the others (section 4.1)
AT_THE_END = 10**9  # steps between evaluations: a pre-training of fixed length selects no checkpoint


# The report's settings (section 5.3): learning rate 1e-5, temperature 0.05, batch 16, 10 epochs, heads of 768, dropout
# 0.3, the first token as embedding. Contrastive pre-training takes 5 epochs on the given sets and 3 on NLI, and
# unsupervised training 10 epochs with 6% of Quora in each. A supervised pre-training keeps its last checkpoint, because
# Tables 8 and 9 compare its length. Of Quora's negative pairs the loss is "maximized instead" (section 4.1). The report
# has no reviews.
_PAPER_VIEWS = PretrainConfig(  # batch, length, projection and evaluations of the scripts of arXiv 2402.18281
    pooling="cls",
    batch_size=128,
    max_length=32,
    projection="linear",
    evaluate_every=125,
    probe_every=25,
    probe_held_out=128,
)


def _unprobed(views: PretrainConfig) -> PretrainConfig:
    """The training of a pruned encoder."""
    return replace(views, probe_every=None, probe_held_out=None)


_PAPER_MULTITASK = replace(REPORT_SETTINGS, pooling="cls", heads=HeadsConfig(head_hidden_size=768), conflicts_every=100)
PAPER = Recipes(
    start=Weights("bert-base-uncased"),
    data=Path("data/real"),
    multitask=_PAPER_MULTITASK,
    supervised=PretrainConfig(
        sources=GIVEN, negative_pairs="literal", epochs=5, pooling="cls", select="last", evaluate_every=AT_THE_END
    ),
    fusion=FuseConfig(finetune=replace(SUPERVISED, pooling="cls")),
    reviews=replace(_PAPER_MULTITASK, tasks=("reviews",), conflicts_every=None),
    masked=None,  # plain BERT is not tuned contrastively
    views=_PAPER_VIEWS,
    pruning=PruneConfig(pooling="cls"),
    recovery=_unprobed(_PAPER_VIEWS),
)

# The scripts of arXiv 2402.18281: frozen embeddings, a learning rate that falls to zero, no weight decay. Its RoBERTa
# trains in batches of 512 and is evaluated every 50 steps. Plain losses have a rate of 1e-6, modified ones other
# margins and ratios than BERT's.
_PARADIGM_VIEWS = replace(
    _PAPER_VIEWS, freeze_embeddings=True, optimizer=OptimizerConfig(schedule="linear", weight_decay=0.0)
)
PARADIGM = replace(PAPER, views=_PARADIGM_VIEWS, recovery=_unprobed(_PARADIGM_VIEWS))
_ROBERTA_VIEWS = replace(_PARADIGM_VIEWS, batch_size=512, evaluate_every=50)
PARADIGM_ROBERTA = replace(
    PARADIGM,
    start=Weights("roberta-base"),
    views=_ROBERTA_VIEWS,
    recovery=_unprobed(_ROBERTA_VIEWS),
    losses={
        "mhe-modified": ObjectiveConfig.of("mhe", uniformity_weight=1.0, dissipation=0.30, weight=0.05, ratio=1.25),
        "mhs-modified": ObjectiveConfig.of("mhs", uniformity_weight=1.0, dissipation=0.27, ratio=1.0),
        **{
            f"{name}-modified": ObjectiveConfig.of(
                name, uniformity_weight=1.0, dissipation=0.37, weight=0.05, ratio=1.25
            )
            for name in ("barlow_twins", "vicreg")
        },
    },
    rates=dict.fromkeys(("mhe", "mhs", "barlow_twins", "vicreg"), 1e-6),
)

# Suited to all-MiniLM-L6-v2, whose embeddings are means: larger learning rates, less data, dropout within the encoder
# off in fine-tuning. This takes one epoch: evaluation on large dev sets takes as long as training. Pre-training on the
# given sets takes three epochs, the most that a table names, instead of five; its loss of negative pairs is bounded.
_SMALL_OPTIMIZER = OptimizerConfig(learning_rate=7e-5, head_learning_rate=1e-3, schedule="linear", warmup=0.1)
_SMALL_MULTITASK = replace(
    REPORT_SETTINGS,
    epochs=1,
    epoch_size=960,
    optimizer=_SMALL_OPTIMIZER,
    encoder_dropout=0.0,
    keep_task_bests=False,
    conflicts_every=50,
)
_SMALL_VIEWS = PretrainConfig(
    batch_size=128,
    max_length=32,
    projection="linear",
    train_limit=4096,
    evaluate_every=8,
    probe_every=4,
    probe_held_out=128,
    optimizer=OptimizerConfig(learning_rate=5e-5),
)


def _fusion(epochs: int, rows: int, optimizer: OptimizerConfig) -> FuseConfig:
    """Fusion training on this many rows a task and epoch."""
    supervised = replace(
        SUPERVISED, epochs=epochs, epoch_size=rows, train_limit=rows, optimizer=optimizer, keep_task_bests=False
    )
    return FuseConfig(finetune=supervised, contrastive=ContrastiveConfig(quora_share=1.0))


# Pre-training must be large enough to differ from none. Most rows have twice the default rate, 5e-5.
_SMALL_PRETRAINING = OptimizerConfig(learning_rate=2.5e-5, head_learning_rate=1e-3)
_GIVEN = replace(PAPER.supervised, negative_pairs="bounded", pooling="auto")
SMALL = Recipes(
    start=Weights("all-minilm-l6-v2"),
    data=Path("data/real"),
    multitask=_SMALL_MULTITASK,
    supervised=replace(_GIVEN, epochs=3, batch_size=64, train_limit=2048, optimizer=_SMALL_PRETRAINING),
    fusion=_fusion(1, 960, _SMALL_OPTIMIZER),
    reviews=replace(_SMALL_MULTITASK, tasks=("reviews",), epochs=2, epoch_size=None, conflicts_every=None),
    masked=MlmConfig(
        train_limit=30_000, max_length=32, optimizer=OptimizerConfig(learning_rate=5e-4, schedule="linear", warmup=0.1)
    ),
    views=_SMALL_VIEWS,
    from_untuned=True,
    pruning=PruneConfig(),
    recovery=replace(_unprobed(_SMALL_VIEWS), train_limit=1024, evaluate_every=AT_THE_END),
    suites=SuitesConfig(limit=300),
)

# As `small`, but long enough for sentiment and paraphrase to rise above the most frequent label: a thousand steps for
# each fine-tuning, and ten evaluations of it, so that curves show when a model is best. An encoder that is pruned is
# trained for a thousand steps, too, and scored on whole test sets.
MEDIUM = replace(
    SMALL,
    multitask=replace(_SMALL_MULTITASK, epochs=10, epoch_size=3200, batch_size=32, conflicts_every=100),
    supervised=replace(SMALL.supervised, train_limit=8192),
    fusion=_fusion(10, 1600, _SMALL_OPTIMIZER),
    reviews=replace(SMALL.reviews, epochs=10),
    recovery=replace(SMALL.recovery, train_limit=64_000, batch_size=64),
    suites=SuitesConfig(),
)

# A thousand rows a task, of which each row of a table sees a part, so that the report is there within minutes on two
# cores. The report's bilinear form of paraphrase needs thousands of steps: here, paraphrase reads pair features.
_SAMPLE_OPTIMIZER = OptimizerConfig(learning_rate=1.5e-4, head_learning_rate=1e-3, schedule="linear", warmup=0.1)
_SAMPLE_MULTITASK = replace(
    _SMALL_MULTITASK,
    epochs=2,
    epoch_size=192,
    heads=replace(FinetuneConfig().heads, dropout=0.1),
    optimizer=_SAMPLE_OPTIMIZER,
    conflicts_every=12,
)
SAMPLE = Recipes(
    start=Weights("all-minilm-l6-v2"),
    data=Path("data/sample"),
    multitask=_SAMPLE_MULTITASK,
    supervised=replace(_GIVEN, train_limit=32),
    fusion=_fusion(2, 128, _SAMPLE_OPTIMIZER),
    reviews=replace(SMALL.reviews, optimizer=_SAMPLE_OPTIMIZER),
    masked=SMALL.masked,
    views=replace(SMALL.views, train_limit=2048, evaluate_every=4, probe_every=2),
    pruning=SMALL.pruning,
    recovery=replace(SMALL.recovery, train_limit=512),
    suites=SMALL.suites,
)

PRESETS: dict[PresetName, Recipes] = {
    "sample": SAMPLE,
    "small": SMALL,
    "medium": MEDIUM,
    "best": replace(SMALL, data=Path("data/phrases")),
    "best-base": replace(PAPER, data=Path("data/phrases")),
    "paper": PAPER,
    "paradigm": PARADIGM,
    "paradigm-roberta": PARADIGM_ROBERTA,
}
_OF_THE_PARADIGM = ("objectives", "objectives-suites", "gradient", "components", "decoupled")
ONLY: dict[PresetName, tuple[str, ...]] = {
    "sample": ("1", "2", "7", "defaults", "figure2", "simulations"),
    "small": (*map(str, range(1, 11)), "simulations"),
    "medium": (*map(str, range(1, 11)), "equal-steps", "figure2"),
    "best": ("best",),
    "best-base": ("best-base",),
    "paradigm": _OF_THE_PARADIGM,
    "paradigm-roberta": _OF_THE_PARADIGM,
}
"""Tables of presets that do not run all."""
FIXED = {"best", "best-base", "defaults"}
"""Tables of the multi-task report's study whose trainings have settings of their own."""

# What a reader of scores must know, by the name of the preset, and of the bundled data.
_FEWER = (
    "Training data is sub-sampled, epochs are fewer and learning rates are larger than the papers'. Compare "
    "orderings with those of the papers, not scores."
)
_MASKED = (
    "The multi-task report's tables begin with masked language modelling, which undoes much of the start weights' "
    "contrastive tuning; every seed has its own run of it."
)
NOTES = {
    "sample": f"{_FEWER} Paraphrase reads pair features, because the report's bilinear form would need more steps. The "
    "other tables vary single settings and run on request, with --tables.",
    "small": f"{_FEWER} {_MASKED}",
    "medium": f"Learning rates are larger than the papers', and trainings shorter: a thousand optimiser steps of each "
    f"fine-tuning at the preset's batch size (round robins three times as many). {_MASKED}",
}
OTHER_SETTINGS = "Not with the preset's own settings"
"""How a note begins that names changed settings."""
SAMPLE_NOTE = (
    "The data is the bundled sample: short texts composed by a script. It is not a benchmark; the scores show only "
    "that everything works and that a model learns."
)


def load_preset(
    name: PresetName,
    start: str | None = None,
    data: Path | None = None,
    tables: Sequence[str] | None = None,
    suites_data: Path | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> Preset:
    """A preset with other start weights, data or tables than its own if they are given.

    Without keys it has its own tables, or all that are not run on request. `changes` are arguments of
    `Recipes.changed`, which the report names. Raises InputError for an unknown key, or a table that changes do not
    reach.
    """
    recipes = PRESETS[name]
    recipes = replace(
        recipes,
        start=Weights(start) if start else recipes.start,
        data=data or recipes.data,
        suites_data=suites_data or recipes.suites_data,
    )
    experiments = all_experiments(recipes)
    keys = (ONLY.get(name) or [e.table.key for e in experiments if not e.on_request]) if tables is None else tables
    own = preset_of(name, recipes, choose_tables(experiments, keys))
    changed = recipes.changed(**changes)
    preset = preset_of(name, changed, choose_tables(all_experiments(changed), keys))
    flags = {f"--{option.replace('_', '-')}": value for option, value in changes.items()}
    changeable = {key for key, study in study_of_tables(recipes).items() if study == "multitask_report"} - FIXED
    changeable.add("simulations")  # train nothing
    usual: dict[str, Any] = {name: getattr(recipes.multitask, name) for name in ("epochs", "epoch_size")}
    usual["negative_pairs"] = recipes.supervised.negative_pairs
    same = [e.models for e in preset.experiments] == [e.models for e in own.experiments]
    idle = same and any(value != usual[option] for option, value in changes.items())
    if flags and (fixed := [e.table.key for e in preset.experiments if idle or e.table.key not in changeable]):
        raise InputError(f"{', '.join(flags)}: no setting of table {', '.join(fixed)}; name others with --tables")
    if same:
        return own
    options = " ".join(f"{flag} {value}" for flag, value in flags.items())
    return replace(preset, notes=(*preset.notes, f"{OTHER_SETTINGS}, but with {options}."))


def preset_of(name: str, recipes: Recipes, experiments: Sequence[Experiment]) -> Preset:
    """A preset that runs some of the tables."""
    of_data = SAMPLE_NOTE if recipes.data.resolve() == SAMPLE.data.resolve() else None
    return Preset(
        name,
        recipes.start,
        recipes.data,
        tuple(experiments),
        notes=tuple(filter(None, (of_data, *notes_on_start(recipes.start.name), NOTES.get(name)))),
        order=tuple(experiment.table.key for experiment in all_experiments(recipes)),
        predicted=(MAIN_TASKS, ("reviews",)),
        next_step="on real data: multitask data fetch, then multitask experiments run small"
        if name == "sample"
        else "",
    )
