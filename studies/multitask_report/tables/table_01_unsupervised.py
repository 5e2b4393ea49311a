"""Table 1 (report, sections 4.1 to 4.3, 5.3): contrastive training without labels beside supervision on sentiment.

Paraphrase and similarity are the cosine of the two embeddings ("without introducing additional layers or parameters",
section 4.3). Where the report leaves a choice, all four rows make the same one: paraphrase is a cosine above 0, as in
a logit's sign; the model of a fine-tuning is that of the epoch with the best overall dev score, and of a contrastive
training that of the epoch with the best correlation on the similarity dev set. "Fusion" has "the same batch of STS
data" in section 4.2, although the classification objective needs sentiment labels, which only the SST data has: read
as a slip for SST.
"""

from dataclasses import replace

from multitask.models.config import HeadsConfig
from studies.engine.recipes import Recipes
from studies.engine.record import Published
from studies.engine.tables import Row, Table


def table(recipes: Recipes) -> Table:
    """One fine-tuning, with contrastive training before, after or within it."""
    sentiment = replace(
        recipes.multitask,
        tasks=("sentiment",),
        untrained=("paraphrase", "similarity"),
        heads=HeadsConfig(sharing="none", dropout=recipes.multitask.heads.dropout),
    )
    vanilla = recipes.finetune(recipes.start, sentiment)
    contrastive = recipes.pretrain(recipes.start, recipes.unsupervised)
    return Table(
        "1",
        "Unsupervised methods",
        "Only sentiment is supervised. Paraphrase and similarity are the cosine of a pair's embeddings, above 0 for a "
        "paraphrase. Contrastive training sees two dropout views of every sentence of the three sets.",
        (
            Row("Vanilla BERT (baseline)", vanilla, Published(0.391, 0.516, 0.388, 0.270)),
            Row("Contrastive first", recipes.finetune(contrastive, sentiment), Published(0.449, 0.479, 0.401, 0.466)),
            Row(
                "Supervised first",
                recipes.pretrain(vanilla, recipes.unsupervised),
                Published(0.502, 0.422, 0.402, 0.682),
            ),
            Row("Fusion", recipes.fuse(recipes.start), Published(0.520, 0.465, 0.410, 0.685)),
        ),
        reference="Fusion",
    )
