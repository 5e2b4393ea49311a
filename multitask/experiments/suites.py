"""Tables whose rows are scored on SentEval's tasks instead of the dev sets."""

from collections.abc import Mapping

from multitask.evaluation.senteval import STS_SETS, TRANSFER_SETS
from multitask.experiments.recipes import Node, Recipes
from multitask.experiments.tables import Row, Table

STS, TRANSFER = "STS", "Transfer"
NAMES = {"sts": STS, "transfer": TRANSFER}
GROUPS = {STS: tuple(entry.name for entry in STS_SETS), TRANSFER: tuple(entry.name for entry in TRANSFER_SETS)}


def suites_table(recipes: Recipes, key: str, title: str, note: str, models: Mapping[str, Node]) -> Table:
    """A table of scores on SentEval's tasks, run on request."""
    groups = {name: GROUPS[name] for name in map(NAMES.__getitem__, recipes.suites.suites)}
    return Table(
        key,
        title,
        f"{note} Scores are SentEval's, of frozen embeddings: Spearman correlation of seven similarity tasks, accuracy "
        "of seven transfer tasks, and their means.",
        tuple(Row(name, model) for name, model in models.items()),
        columns=tuple(name for names in groups.values() for name in names),
        on_request=True,
        groups=groups,
        evaluation=recipes.on_suites,
    )
