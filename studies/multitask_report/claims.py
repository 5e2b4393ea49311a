"""The report's orderings and textual claims.

`ORDERINGS` and `EQUALITIES` were written down before the run that decides them; of both, Overall comes first, the
similarity of the same rows, in its own published order, second. The others were added when first results were known.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from multitask.experiments.grid_frames import RunResult
from multitask.experiments.table_definitions import OVERALL
from studies.report.claims import MARGIN, Claim, ClaimPlace, ClaimResults, every, share
from studies.report.verdicts import Statement

SENTIMENT, PARAPHRASE, SIMILARITY = "sentiment", "paraphrase", "similarity"
LATER = " Criterion made after first results were read."


class Better(NamedTuple):
    """A row that the report has above another one."""

    table: str
    column: str
    first: str
    second: str
    text: str
    margin: float = MARGIN
    """0 if the published difference is below 0.01: such a difference must not count as equivalence."""
    section: str = ""
    """Where the report says it, if not in the table."""
    when: str = ""
    """What the criterion says of the time when it was made."""

    @property
    def claim(self) -> Claim:
        """The first row's mean is higher."""
        margin = f"margin {self.margin}" if self.margin else "no margin: the published difference is below 0.01"
        return Claim(
            f"{'' if self.column == OVERALL else f'{self.column}-'}{self.first}-over-{self.second}-in-{self.table}",
            "report",
            self.section or f"Table {self.table}",
            f"{self.text} ({self.column}).",
            f"The row's mean is higher ({margin}).{self.when}",
            lambda results: results.above(self.first, self.second, margin=self.margin),
            (ClaimPlace(self.table, self.column),),
        )


class Equal(NamedTuple):
    """Two rows that the report finds equal; of Overall."""

    table: str
    first: str
    second: str
    text: str
    section: str

    @property
    def claim(self) -> Claim:
        """The two means differ by less than the margin."""

        def says(results: ClaimResults) -> Statement:
            return results.equal(self.first, self.second)

        key, text = f"{self.first}-equals-{self.second}-in-{self.table}", f"{self.text} (overall)."
        criterion, places = f"The two means differ by less than {MARGIN}.", (ClaimPlace(self.table, OVERALL),)
        return Claim(key, "report", self.section, text, criterion, says, places)


FIRST_LAYER, SHARED, SEPARATE = "sharing=shared_first_layer", "sharing=shared", "sharing=separate"
AVERAGE, BATCHES, EPOCHS = "scheduler=average", "scheduler=batch_round_robin", "scheduler=epoch_round_robin"
PCGRAD = "scheduler=pcgrad"
GIVEN_HELPS = "Contrastive pre-training on the three given sets helps"
RATE = "Twice the default learning rate is better than the default"
TOGETHER = "{} benefits from training with the other tasks"
WITH_LABELS = "Contrastive pre-training with labels works better than without"
SLIGHTLY = "Sharing the first layer is slightly better than a network for each task"


def both(table: str, first: str, second: str, text: str) -> list[Better]:
    """The ordering of two rows by the overall score and by similarity."""
    return [Better(table, column, first, second, text) for column in (OVERALL, SIMILARITY)]


ORDERINGS = (
    *both("1", "fusion", "vanilla", "Fusion is above the baseline without contrastive training"),
    *both("1", "fusion", "contrastive-first", "Fusion is above training contrastively first"),
    Better("1", OVERALL, "fusion", "supervised-first", "Fusion training leads to the best score"),
    *both("2", "given", "none", GIVEN_HELPS),
    Better("2", SIMILARITY, "nli", "given", "NLI is above the three given sets"),
    Better("3", OVERALL, FIRST_LAYER, SHARED, "Sharing the first layer works better than sharing whole heads"),
    *both("4", "given", "quora", "Pre-training on all three sets works better than on Quora alone"),
    Better("4", SIMILARITY, "quora-positives", "quora", "Quora without negative pairs is above Quora with them"),
    *both("5", "nli", "nli-given", "Pre-training on NLI and the given sets one after the other hurts"),
    *both("5", "nli-given", "given-nli", "It hurts especially when NLI comes after"),
    Better("6", OVERALL, AVERAGE, BATCHES, "The average loss works better than batch round robin"),
    Better("6", SIMILARITY, BATCHES, AVERAGE, "Batch round robin is above the average loss"),
    Better("6", SIMILARITY, EPOCHS, AVERAGE, "Epoch round robin is above the average loss"),
    Better("7", SIMILARITY, AVERAGE, PCGRAD, "The average loss works better than gradient surgery"),
    *both("8", "epochs=3", "epochs=1", "Longer pre-training on NLI is better"),
    *both("9", "epochs=3", "epochs=2", "Longer pre-training on the three given sets is better"),
    *both("10", "rate=2", "rate=1", RATE),
    Better("10", SIMILARITY, "rate=3", "rate=2", "Three times the default learning rate is better than twice"),
    Better("2", PARAPHRASE, "given-single-task", "given", "Paraphrase detection benefits from single-task training"),
    Better("1", SIMILARITY, "fusion", "supervised-first", "Fusion training leads to the best score", 0),
    Better("2", OVERALL, "given", "nli", "The three given sets are above NLI", 0),
    Better("3", OVERALL, FIRST_LAYER, SEPARATE, SLIGHTLY, 0),
    Better("3", SIMILARITY, FIRST_LAYER, SEPARATE, SLIGHTLY, 0),
    Better("3", SIMILARITY, FIRST_LAYER, SHARED, "Sharing the first layer works better than sharing whole heads", 0),
    Better("7", OVERALL, AVERAGE, PCGRAD, "The average loss works better than gradient surgery", 0),
)
EQUALITIES = (
    Equal(
        *("4", "quora", "quora-positives", "Negative pairs of Quora improve performance only slightly"),
        "section 6.3, Table 4",
    ),
    Equal(
        *(
            "10",
            "rate=2",
            "rate=3",
            "Learning rates of two and three times the default give only slightly different performance",
        ),
        "section 6.5, Table 10",
    ),
    *(
        Equal(
            *("batches", "pretraining=16,finetuning=16", row),
            f"Performance is robust to the batch size of {stage}, 16 or 64",
            "section 6.5",
        )
        for row, stage in {
            "pretraining=64,finetuning=16": "pre-training",
            "pretraining=16,finetuning=64": "fine-tuning",
        }.items()
    ),
)
later = partial(Better, when=LATER)
LATER_ORDERINGS = (
    later("3", OVERALL, SEPARATE, SHARED, "A network for each task works better than sharing whole heads"),
    later("6", OVERALL, AVERAGE, EPOCHS, "The average loss works better than epoch round robin"),
    later("2", SENTIMENT, "given", "none", GIVEN_HELPS),
    later("2", PARAPHRASE, "given", "none", GIVEN_HELPS),
    later("2", SENTIMENT, "given", "given-single-task", TOGETHER.format("Sentiment")),
    later("2", SIMILARITY, "given", "given-single-task", TOGETHER.format("Similarity")),
    later("pairs", OVERALL, "report", "none", "Layers in the heads help", section="section 6.1"),
    later("supervision", OVERALL, "supervised", "unsupervised", WITH_LABELS, section="section 6.2"),
)
LEAST_EVALUATIONS = 10  # fewer do not tell when a training is best


def until_best(run: RunResult) -> float | None:
    """The share of a training until its best evaluation, by Overall. None with few evaluations, or no defined score."""
    curve = run.curve(OVERALL)
    tells = len(curve) >= LEAST_EVALUATIONS and not np.isnan(curve).all()
    return float(np.nanargmax(curve) + 1) / len(curve) if tells else None


def soon_best(results: ClaimResults) -> Statement:
    """All models of Figure 2 are best in the first half of their training."""
    return every(
        results.above(row.key, bound=0.5, above=False, measure=until_best, form=share)
        for row in results.table.table.rows
    )


def sooner_best(results: ClaimResults) -> Statement:
    """After a pre-training at twice the rate, the fine-tuning is best earlier."""
    return results.above("rate=2", "rate=1", above=False, measure=until_best)


SPEED = (
    Claim(
        *("few-epochs", "report", "section 5.4.2, Figure 2"),
        "It takes all major models only a few fine-tuning epochs to reach the best dev score.",
        f"Each model of Figure 2 is best in the first half of its training (of ten evaluations or more).{LATER}",
        soon_best,
        (ClaimPlace("figure2", OVERALL),),
    ),
    Claim(
        *("larger-rates-converge-faster", "report", "section 6.5"),
        "Moderately larger learning rates tend to make the model training converge faster.",
        "After a pre-training at twice the default rate, the best evaluation of the fine-tuning (of ten or more) comes "
        f"earlier than after one at the default rate.{LATER}",
        sooner_best,
        (ClaimPlace("10", OVERALL),),
    ),
)
CLAIMS = (*(one.claim for one in (*ORDERINGS, *LATER_ORDERINGS)), *(one.claim for one in EQUALITIES), *SPEED)
