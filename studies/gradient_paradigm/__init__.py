"""Two papers on the gradients of contrastive losses: their simulations, tables, claims and figures."""

from studies.study import Paper

UNIFIED = Paper(
    "paradigm",
    "Gradient paradigm paper",
    "arXiv 2402.18281",
    "Towards Better Understanding of Contrastive Sentence Representation Learning: A Unified Paradigm for Gradient",
)
INADEQUACY = Paper(
    "inadequacy",
    "Gradient dissipation paper",
    "ICLR 2023",
    "On the Inadequacy of Optimizing Alignment and Uniformity in Contrastive Learning of Sentence Representations",
)
