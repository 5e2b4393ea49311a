"""The gradient paradigm as the study has it (arXiv 2402.18281, section 3): its parameters, losses, and Lemma 1."""

from torch import Tensor

from multitask.objectives import closed_forms
from multitask.objectives.gradient_paradigm import GradientParadigm
from studies.gradient_paradigm.simulation_outcomes import NAMES

PARADIGM = GradientParadigm()
USED = (closed_forms.INFONCE, closed_forms.ARCCON, PARADIGM, closed_forms.MPT, closed_forms.MET, closed_forms.MAT)
"""Every objective whose defaults decide a result of this package."""
DISSIPATIONS = {name: closed_forms.DISSIPATIONS[name] for name in NAMES}
"""Those of the papers' simulation."""


def lemma_1_bounds(positive: Tensor, negative: Tensor, cosine: Tensor, step_size: float) -> tuple[Tensor, Tensor]:
    """Between which ratios r a step of the anchor brings it closer to its positive (arXiv 2402.18281, Lemma 1).

    The anchor moves by λ(r v − w) less the part along itself, v its positive and w a negative. In the tangent plane
    at the anchor v lies at distance sin(α), w at sin(β), and the angle between them is φ. The new anchor is closer to
    v there than the old one was iff

        |r − 1/λ − sin β cos φ / sin α| < sqrt(1/λ² − sin²β sin²φ / sin²α).

    Lengths are the tangent plane's: the way back to the sphere is left out.

    Args:
        positive: α, [...].
        negative: β, [...].
        cosine: of φ, [...].
        step_size: λ.

    Returns:
        Both bounds, [...] each; NaN where no ratio will do.
    """
    relative = negative.sin() / positive.sin()
    centre = 1 / step_size + relative * cosine
    half = (1 / step_size**2 - relative.square() * (1 - cosine.square())).sqrt()
    return centre - half, centre + half
