"""A table is a title and labelled rows; a row is a fine-tuning. Rows that are equal are trained once."""

from dataclasses import dataclass, replace

from multitask.config import FinetuneConfig, PairInput, Sharing


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    label: str
    finetune: FinetuneConfig


@dataclass(frozen=True)
class Table:
    """Rows that are compared with each other.

    Args:
        title: what is compared.
        note: what a reader must know to read the rows, in a sentence or two.
        rows: with labels that differ.
    """

    title: str
    note: str
    rows: tuple[Row, ...]


def heads_table(base: FinetuneConfig) -> Table:
    """What the heads share (report, Table 3), two other ways to compare a pair, and a baseline without pair heads."""

    def heads(sharing: Sharing, residual: bool = False, pairs: PairInput = "embeddings") -> FinetuneConfig:
        return replace(base, heads=replace(base.heads, sharing=sharing, residual=residual, pairs=pairs))

    return Table(
        "What the prediction heads share",
        "Sentiment, paraphrase and similarity trained together. The first four rows compare two transformed "
        "embeddings: paraphrase by a bilinear form, similarity by the cosine; residual transforms begin as the "
        "identity. Pair features are |x-y|, x*y and x+y, read by an MLP for each task. The baseline trains sentiment "
        "alone and takes the cosine of a pair's embeddings for both (above 0: a paraphrase).",
        (
            Row("Shared first layer", heads("shared_first_layer")),
            Row("Separate heads", heads("separate")),
            Row("Shared heads", heads("shared")),
            Row("Shared first layer, residual", heads("shared_first_layer", residual=True)),
            Row("Pair features", heads("separate", pairs="features")),
            Row(
                "No pair heads (baseline)",
                replace(heads("none"), tasks=("sentiment",), untrained=("paraphrase", "similarity")),
            ),
        ),
    )


def tasks_table(base: FinetuneConfig) -> Table:
    """One model for three tasks beside one model for each."""
    return Table(
        "One model for all tasks, or one for each",
        "The single models have the heads and settings of the first row, and train on their own task only.",
        (
            Row("Together", base),
            Row("Sentiment alone", replace(base, tasks=("sentiment",))),
            Row("Paraphrase alone", replace(base, tasks=("paraphrase",))),
            Row("Similarity alone", replace(base, tasks=("similarity",))),
        ),
    )


def reviews_table(base: FinetuneConfig) -> Table:
    """The fourth task: long reviews, positive or negative."""
    return Table(
        "Long reviews",
        "Binary sentiment of whole film reviews, trained alone.",
        (Row("Reviews", replace(base, tasks=("reviews",), epoch_size=None)),),
    )
