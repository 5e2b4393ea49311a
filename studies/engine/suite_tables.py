"""Tables whose rows are scored on SentEval's tasks instead of the dev sets."""

from collections.abc import Mapping

from multitask.evaluation.senteval_files import SETS
from studies.engine.recipes import Node, Recipes
from studies.engine.tables import Row, Table

STS, TRANSFER = "STS", "Transfer"
NAMES = {"sts": STS, "transfer": TRANSFER}
GROUPS = {NAMES[suite]: tuple(entry.name for entry in sets) for suite, sets in SETS.items()}


def suites_table(recipes: Recipes, key: str, title: str, note: str, models: Mapping[str, Node]) -> Table:
    """A table of scores on SentEval's tasks, run on request."""
    groups = {NAMES[suite]: GROUPS[NAMES[suite]] for suite in recipes.suites.suites}
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
