"""`multitask probe`: the gradient that a contrastive objective gives a model's embeddings."""

from minbert.files import write_json
from multitask.cli.commands import Probe
from multitask.evaluation.gradient_probe import probe_checkpoint, similar_pairs
from multitask.evaluation.text_tables import probe_table
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.tasks.sources import training_sentences


def probe(options: Probe) -> None:
    """Probe; print a table of the means over the batches."""
    similar = options.source == "similar_pairs"
    texts = (
        similar_pairs(options.data)
        if similar
        else training_sentences(options.source, options.data, option="--source").texts
    )
    objective = options.objective.build()
    encoder = SentenceEncoder.load(
        options.model,
        options.revision,
        device=options.device,
        precision=options.precision,
        keep_layers=True,  # for their dropout
    )
    found = probe_checkpoint(encoder, texts, objective, options.batch_size, options.batches, options.seed)
    summaries = [components.summary() for components in found]
    print(f"{objective}, {len(found)} batches of {options.batch_size}")
    print(probe_table(summaries))
    if options.output is not None:
        write_json(options.output, {"objective": str(objective), "source": options.source, "batches": summaries})
        print(options.output)
