"""`multitask probe`: the gradient that a contrastive objective gives a model's embeddings."""

from dataclasses import field
from math import isfinite
from pathlib import Path
from typing import Annotated

from pydantic import Field

from minbert.settings import Count, Seed, settings
from multitask.cli.command import Command
from multitask.objectives.config import ObjectiveConfig
from multitask.runtime.options import Computing


@settings
class Probe:
    """Show the gradient that an objective gives a model's embeddings: dissipation, weights of negatives, ratio."""

    model: str
    """The model: a run, a model folder, all-minilm-l6-v2 or a hub id."""
    revision: str | None = None
    """Revision of a hub id: a branch, tag or commit."""
    data: Path = Path("data/sample")
    """Folder with the tasks' files and other sentences."""
    source: str = "unlabelled"
    """What to embed: dropout views of `unlabelled` sentences, of another text file (its name, ending in .txt) or of a
    task's training sentences; or `similar_pairs`, the pairs of the similarity dev set with a gold similarity of at
    least 4."""
    objective: ObjectiveConfig = ObjectiveConfig()
    """Loss on sentence pairs, with parameters, e.g. vicreg:dissipation=0.3,weight=0.05. One of: infonce, mnrl, arccon,
    mpt, met, mat, dcl, dcl_positive, align_uniform, gradient, mhe, mhs, barlow_twins, vicreg or mixed.
    --help-objective NAME explains one."""
    batch_size: Annotated[int, Field(ge=2)] = 64
    """Pairs in a batch."""
    batches: Count = 10
    """Most batches to probe."""
    seed: Seed = 0
    """Seed of the choice of rows and of dropout."""
    output: Path | None = None
    """JSON file to write with the values of every batch. Default: none."""
    computing: Computing = field(default_factory=Computing)


def probe(options: Probe) -> int:
    """Probe; print a table of the means over the batches."""
    from minbert.files import write_json
    from multitask.evaluation.probe_encoder import probe_checkpoint, similar_pairs
    from multitask.evaluation.text_tables import probe_table
    from multitask.models.sentence_encoder import SentenceEncoder
    from multitask.tasks.training_sentences import training_sentences

    similar = options.source == "similar_pairs"
    texts = similar_pairs(options.data) if similar else [training_sentences(options.source, options.data)[0]]
    objective = options.objective.build()
    encoder = SentenceEncoder.load(
        options.model,
        options.revision,
        device=options.computing.device,
        precision=options.computing.precision,
        keep_layers=True,  # for their dropout
    )
    found = probe_checkpoint(encoder, texts, objective, options.batch_size, options.batches, options.seed)
    summaries = [components.summary() for components in found]
    print(f"{objective}, {len(found)} batches of {options.batch_size}")
    print(probe_table(summaries))
    if options.output is not None:
        finite = [{name: v if isfinite(v) else None for name, v in summary.items()} for summary in summaries]
        write_json(options.output, {"objective": str(objective), "source": options.source, "batches": finite})
        print(options.output)
    return 0


COMMAND = Command(
    "probe",
    Probe,
    probe,
    common=("model", "data", "source", "objective", "batch_size", "batches", "seed", "output", "device"),
)
