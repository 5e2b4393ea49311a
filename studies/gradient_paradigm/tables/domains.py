"""How losses depend on what the sentences are about: dropout views of questions, reviews, captions and news."""

from dataclasses import replace

from multitask.data.read_unlabelled_files import CAPTIONS_FILE, NEWS_FILE
from studies.engine.recipes import Recipes
from studies.engine.tables import Row, Table
from studies.gradient_paradigm.tables.objectives import OBJECTIVES

DOMAINS = {
    "questions": "paraphrase",
    "snippets of film reviews": "sentiment",
    "captions": CAPTIONS_FILE,
    "news": NEWS_FILE,
    "unlabelled text": "unlabelled",
}
LABELS = ("InfoNCE", "VICReg, modified")
SENTENCES = 3000  # fewer than the smallest domain of the course's data has, the captions


def table(recipes: Recipes) -> Table:
    """As many sentences of each domain, without their labels."""
    limit = min(SENTENCES, recipes.views.train_limit or SENTENCES)
    views = replace(recipes.views, train_limit=limit)
    return Table(
        "domains",
        "Domain of unsupervised pre-training",
        f"Beyond the papers. At most {SENTENCES:,} sentences of each. Similarity is tested on other captions, news and "
        "forum posts.",
        tuple(
            Row(
                f"{label}, {domain}",
                recipes.pretrain(recipes.untuned, replace(views, sources=(source,), objective=OBJECTIVES[label])),
            )
            for label in LABELS
            for domain, source in DOMAINS.items()
        ),
        reference=f"{LABELS[0]}, unlabelled text",
        columns=("similarity",),
        on_request=True,
    )
