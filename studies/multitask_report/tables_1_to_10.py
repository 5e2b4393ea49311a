"""Tables 1 to 10 and Figure 2 of the multi-task report, with the choices that the report leaves open.

Rows with the same published scores have the same recipe.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isnan
from typing import Any

from multitask.models.config import HeadsConfig, Sharing
from multitask.runs.artefact import Weights
from multitask.schedulers.config import SchedulerConfig
from multitask.stages.settings.finetune import FinetuneConfig
from studies.engine.experiments import Experiment, experiment, read_tables
from studies.engine.recipes import Node, Recipes
from studies.engine.table import MAIN_TASKS, OVERALL, Point, Row, key_of

DESCRIBED = read_tables(__file__)
"""What `tables.toml` has of each table: title, note, rows with published scores."""


def with_recipes(key: str, models: Mapping[str, Node]) -> Experiment:
    """A table of `tables.toml` with the recipes of its rows by key. A row that only the report can have has none."""
    described: dict[str, Any] = dict(DESCRIBED[key])
    rows = [_row(**row) for row in described.pop("rows")]
    return experiment(**described, lines=[(row, models.get(row.key)) for row in rows])


def started_from(key: str, recipes: Recipes, starts: Mapping[str, Node | Weights]) -> Experiment:
    """A table whose rows differ in the model that the fine-tuning starts from."""
    return with_recipes(key, {row: recipes.finetune(start) for row, start in starts.items()})


def configured(key: str, recipes: Recipes, configs: Mapping[str, FinetuneConfig]) -> Experiment:
    """A table whose rows differ in the settings of a fine-tuning of the start weights."""
    return with_recipes(key, {row: recipes.finetune(recipes.start, config) for row, config in configs.items()})


def _row(label: str, key: str = "", point: Point | None = None, published: Sequence[float] = ()) -> Row:
    scores = zip((OVERALL, *MAIN_TASKS), published, strict=False)  # tables beyond the report have no published scores
    return Row(key or key_of(point or {}), label, point or {}, {name: s for name, s in scores if not isnan(s)})


def table_1(recipes: Recipes) -> Experiment:
    """Report, sections 4.1 to 4.3 and 5.3: contrastive training without labels, and supervision on sentiment.

    Paraphrase and similarity are the cosine of the two embeddings ("without introducing additional layers or
    parameters", section 4.3). The report leaves some choices open; all four rows make the same ones. A pair is a
    paraphrase if its cosine is above 0, like the sign of a logit. A fine-tuning keeps the epoch with the best overall
    dev score, a contrastive training the epoch with the best correlation on the similarity dev set. Section 4.2 trains
    "Fusion" on "the same batch of STS data", but its classification objective needs sentiment labels, which only SST
    has. We read it as a slip for SST.
    """
    sentiment = replace(
        recipes.multitask,
        tasks=("sentiment",),
        untrained=("paraphrase", "similarity"),
        heads=HeadsConfig(sharing="none", dropout=recipes.multitask.heads.dropout),
    )
    vanilla = recipes.finetune(recipes.start, sentiment)
    contrastive = recipes.pretrain(recipes.start, recipes.unsupervised)
    models = {
        "vanilla": vanilla,
        "contrastive-first": recipes.finetune(contrastive, sentiment),
        "supervised-first": recipes.pretrain(vanilla, recipes.unsupervised),
        "fusion": recipes.fuse(recipes.start),
    }
    return with_recipes("1", models)


def table_2(recipes: Recipes) -> Experiment:
    """Report, section 5.4.2: supervised fine-tuning from different pre-trainings, and an ensemble.

    The single-task row "comes from 3 different models", each scored on the task that it was trained on. The report does
    not name the models of the ensemble; here they are the models of this table, and each task takes the best one on its
    dev set. The course does not publish its test labels, so the test row has the report's scores only. Prediction files
    for the test sets are written next to the report.
    """
    none, nli, given = (recipes.finetune(start) for start in (recipes.start, recipes.nli(), recipes.given()))
    single = [recipes.finetune(recipes.given(), replace(recipes.multitask, tasks=(task,))) for task in MAIN_TASKS]
    models = {
        "none": none,
        "nli": nli,
        "given": given,
        "given-single-task": recipes.ensemble(*single),
        "ensemble-dev": recipes.ensemble(none, nli, given, *single),
    }
    return with_recipes("2", models)


def figure_2(recipes: Recipes) -> Experiment:
    """Report, section 5.4.2: overall dev score of the supervised models after every fine-tuning epoch.

    "It takes all major models only a few fine-tuning epochs": the curves are Table 2's three models of all tasks. The
    report does not print the figure's values.
    """
    starts: dict[str, Node | Weights] = {"none": recipes.start, "nli": recipes.nli(), "given": recipes.given()}
    return started_from("figure2", recipes, starts)


def table_3(recipes: Recipes) -> Experiment:
    """Report, section 6.1: what the prediction heads share.

    The report does not say where the fine-tuning starts. Its best row (0.539) is close to the baseline without
    contrastive pre-training (0.540), so we start from the start weights. The bold row is then that baseline.
    """
    kinds: tuple[Sharing, ...] = ("separate", "shared", "shared_first_layer")
    heads = {sharing: replace(recipes.multitask.heads, sharing=sharing) for sharing in kinds}
    configs = {f"sharing={sharing}": replace(recipes.multitask, heads=of) for sharing, of in heads.items()}
    return configured("3", recipes, configs)


def table_4(recipes: Recipes) -> Experiment:
    """Report, sections 6.2 and 6.3: Quora's non-paraphrases as negative pairs, and the other two sets.

    The settings are section 5.3's defaults: the usual learning rate, five epochs. The report's scores of "All 3 given"
    differ from those of the same settings in Table 10 (0.637) and appear in no other table. For pairs with label 0, the
    report maximises the contrastive loss ("whose contrastive loss is maximized instead"), which has no bound; here a
    bounded loss pushes them apart.
    """
    starts = {
        "quora-positives": recipes.quora(replace(recipes.supervised, negative_pairs="left_out")),
        "quora": recipes.quora(recipes.supervised),
        "given": recipes.given(rate=1),
    }
    return started_from("4", recipes, starts)


def table_5(recipes: Recipes) -> Experiment:
    """Report, section 6.3: the data of the contrastive pre-training.

    Both "NLI" and "3 given" are bold in the report. The reference row is "3 given", the better of the two. A second
    pre-training starts from the encoder of the first; each has its own epochs and its own projection.
    """
    nli, given = recipes.nli(), recipes.given()
    starts = {"nli-given": recipes.given(start=nli), "given-nli": recipes.nli(start=given), "nli": nli, "given": given}
    return started_from("5", recipes, starts)


def table_6(recipes: Recipes) -> Experiment:
    """Report, sections 4.2 and 6.4: how the three tasks share the steps.

    The row of the average loss has the scores of Table 2's baseline, so all three rows are fine-tuned without
    pre-training. The report's epoch round robin trains "on each entire dataset sequentially". If a preset sets the size
    of an epoch, all rows have that size.
    """
    schedulers = ("epoch_round_robin", "batch_round_robin", "average")
    configs = {f"scheduler={name}": replace(recipes.multitask, scheduler=name) for name in schedulers}
    return configured("6", recipes, configs)


def table_7(recipes: Recipes) -> Experiment:
    """Report, sections 4.2 and 6.4: PCGrad (Yu et al. 2020, arXiv 2001.06782) instead of the average loss.

    The row of the average loss has the scores of Table 5's "NLI before 3 given", so both rows start from that
    pre-training. The tasks' gradients are averaged after the projection, as in the code that the report uses
    (https://github.com/WeiChengTseng/Pytorch-PCGrad). Both rows then make steps of the same scale.
    """
    start = recipes.given(start=recipes.nli())
    surgery = replace(recipes.multitask, scheduler="pcgrad", scheduling=SchedulerConfig(reduction="mean"))
    models = {"scheduler=pcgrad": recipes.finetune(start, surgery), "scheduler=average": recipes.finetune(start)}
    return with_recipes("7", models)


def table_8(recipes: Recipes) -> Experiment:
    """Report, section 6.5: epochs of the contrastive pre-training on NLI. Three epochs are Table 2's row."""
    return started_from("8", recipes, {f"epochs={epochs}": recipes.nli(epochs=epochs) for epochs in (1, 3)})


def table_9(recipes: Recipes) -> Experiment:
    """Report, section 6.5: epochs of the contrastive pre-training on the three given sets.

    The report does not give the learning rate; here it is the default one. No other table has the scores of these rows.
    """
    starts = {f"epochs={epochs}": recipes.given(rate=1, epochs=epochs) for epochs in (2, 3)}
    return started_from("9", recipes, starts)


def table_10(recipes: Recipes) -> Experiment:
    """Report, section 6.5: learning rate of the contrastive pre-training on the three given sets.

    The rows have one, two and three times the default rate. If the preset's default is not the report's 1e-5, labels
    give both rates. The rate of the fine-tuning does not change.
    """
    default, rates = recipes.supervised.optimizer.learning_rate, {"rate=1": 1, "rate=2": 2, "rate=3": 3}

    def relabelled(row: Row) -> Row:
        own = f"{rates[row.key] * default:.0e}".replace("e-0", "e-")
        return row if own == row.label else replace(row, label=f"{own} (report: {row.label})")

    made = started_from("10", recipes, {row: recipes.given(rate=rate) for row, rate in rates.items()})
    return replace(made, table=replace(made.table, rows=tuple(map(relabelled, made.table.rows))))


TABLES = (
    *(table_1, table_2, table_3, table_4, table_5, table_6, table_7, table_8, table_9, table_10),
    figure_2,
)
