"""Hard negatives for pairs of sentences: texts of a corpus that are near an anchor and not known to mean the same.

Source of ranks and margins: NV-Retriever (arXiv 2407.15831, section 3.1). Options mean what they mean in
`mine_hard_negatives` of sentence-transformers, except that ranks count before margins, not after them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from minbert.errors import InputError
from multitask.data.contamination import Hashes, hash_sentences
from multitask.data.examples import texts_of
from multitask.data.problems import LOGGER, listed
from multitask.data.read_tables import open_table
from multitask.data.tables import Source
from multitask.data.write_tables import table_writer
from multitask.inference.embed_file import SENTENCES_PER_BLOCK, Index, embed_file, text_columns
from multitask.inference.hard_negatives import HardNegatives
from multitask.inference.search import Neighbours, Rows, rescored
from multitask.models.sentence_encoder import Embedder
from multitask.runtime.random_streams import generator
from multitask.tasks.sources import PAIRED, PAIRS, TRIPLETS, read_paired_sentences

ANCHORS_PER_BLOCK = 4096
SOURCES = ("quora", *PAIRED)
COLUMNS = {"triplets": TRIPLETS.columns, "pairs": (*PAIRS.columns, "label")}

Near = Callable[[NDArray[np.float32], int], Neighbours]


class Pairs(NamedTuple):
    """Pairs of sentences with the same meaning. Anchors that are equal but for case, space and marks are one."""

    anchors: Sequence[str]
    positives: Sequence[str]
    owners: Rows  # [pairs] the number of each pair's anchor; anchors are counted as they appear
    firsts: Rows  # [anchors] the first pair of each anchor

    @classmethod
    def of(cls, anchors: Sequence[str], positives: Sequence[str]) -> "Pairs":
        """Number the anchors."""
        numbers: dict[int, int] = {}
        owners = [numbers.setdefault(key, len(numbers)) for key in hash_sentences(anchors).tolist()]
        return cls(anchors, positives, np.array(owners), np.unique(owners, return_index=True)[1])

    def known(self, keys: Hashes, rows: Rows, count: int) -> Rows:
        """Which texts are no negatives of which anchors: sorted numbers `anchor * count + row`.

        These are the anchor itself and all sentences that it has a pair with, in either column. `keys` are the sorted
        hashes of the corpus' distinct texts, `rows` their rows, and `count` is the number of its rows.
        """
        first, second = hash_sentences(self.anchors), hash_sentences(self.positives)
        number_of = dict(zip(first.tolist(), self.owners.tolist(), strict=True))
        reverse = np.array([number_of.get(key, -1) for key in second.tolist()])  # where the positive is an anchor, too
        anchors, texts = np.concatenate([self.owners, self.owners, reverse]), np.concatenate([second, first, first])
        places = np.searchsorted(keys, texts).clip(max=len(keys) - 1)
        found = (keys[places] == texts) & (anchors >= 0)
        return np.unique(anchors[found] * count + rows[places[found]])


def read_pairs(name: str, columns: Sequence[str], data: Path) -> Pairs:
    """Pairs of a table, or of a source of `pretrain` in a data folder; rows with a blank sentence are left out.

    The default columns are those of triplets or of pairs. Raises InputError if there is no pair.
    """
    if name in SOURCES:
        examples, _ = read_paired_sentences(name, data, None, None, negative_pairs=False, option="pairs")
        return Pairs.of(*examples.sentences[:2])
    if not columns:
        there = open_table(Source(name)).columns
        columns = next((known for known in (TRIPLETS.columns[:2], PAIRS.columns) if set(known) <= set(there)), ())
        if not columns:
            raise InputError(f"{name}: the columns are {listed(there)}; name those of the sentences with --text")
    found = [row for row in text_columns(Path(name), columns) if all(map(str.strip, row))]
    if not found:
        raise InputError(f"{name}: no pair; expected at least one with two sentences")
    return Pairs.of(*map(list, zip(*found, strict=True)))


@contextmanager
def index_of(encoder: Embedder, pairs: Pairs, corpus: Path | None, column: str | None, output: Path) -> Iterator[Index]:
    """The embeddings of a corpus: those of an .npy file, or of a text file or all sentences of the pairs.

    The latter are written into a folder next to the output, which is removed at the end.
    """
    if corpus is not None and corpus.suffix == ".npy":
        yield Index.open(corpus, encoder)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{output.name}.", suffix=".tmp", dir=output.parent) as folder:
        if corpus is None:
            corpus, column = Path(folder, "sentences.jsonl"), "text"
            with table_writer(corpus, ["text"]) as write:
                write([{"text": text} for text in dict.fromkeys((*pairs.anchors, *pairs.positives))])
        embed_file(encoder, corpus, Path(folder, "corpus.npy"), column, normalize=True)
        yield Index.open(Path(folder, "corpus.npy"), encoder)


def negatives_of(encoder: Embedder, pairs: Pairs, corpus: Index, options: HardNegatives) -> tuple[Rows, Rows]:
    """The negatives of all anchors: numbers of anchors, ascending, and rows of the corpus, nearest first.

    Of texts in the corpus that are equal but for case, space and marks, only the first can be a negative.
    """
    keys, rows = np.unique(hash_sentences(corpus.texts()), return_index=True)
    among, count = np.sort(rows), len(corpus.vectors)
    if len(among) < count:
        LOGGER.info(
            "%d of the corpus' %d texts are duplicates, but for case, space and marks", count - len(among), count
        )
    known = pairs.known(keys, rows, count)
    most_known = int(np.bincount(known // count, minlength=1).max())
    near = _approximate(corpus, among) if options.approximate else partial(corpus.search, among=among)
    draw = generator(options.seed, "hard negatives")
    anchors, negatives = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for start in tqdm(range(0, len(pairs.firsts), ANCHORS_PER_BLOCK), unit="block", disable=None):
        texts = texts_of(pairs.anchors, pairs.firsts[start : start + ANCHORS_PER_BLOCK])
        vectors = encoder.encode(texts, dimensions=corpus.dimensions)
        nearest = near(vectors, options.ranks[1] + most_known)
        numbers = np.arange(start, start + len(vectors))[:, None]
        usable = ~np.isin(numbers * count + nearest.indices, known)
        usable[:, 1:] &= nearest.indices[:, 1:] != nearest.indices[:, :-1]  # a graph may find too few
        limits = _limits(_cosines_of_positives(encoder, pairs, vectors, start), options)
        chosen = choose(nearest.scores, usable, limits, options, draw)
        anchors.append(np.broadcast_to(numbers, chosen.shape)[chosen])
        negatives.append(nearest.indices[chosen])
    return np.concatenate(anchors), np.concatenate(negatives)


def choose(
    scores: NDArray[np.float32],
    usable: NDArray[np.bool_],
    limits: NDArray[np.float64],
    options: HardNegatives,
    draw: np.random.Generator,
) -> NDArray[np.bool_]:
    """Which candidates are taken, [anchors, candidates].

    Args:
        scores: cosines of the candidates, nearest first.
        usable: whether a candidate may be a negative; others have no rank.
        limits: the highest cosine that a negative of each anchor may have, [anchors].
        options: ranks, number and sampling.
        draw: the random stream of the sampling.
    """
    ranks, (skipped, last) = usable.cumsum(axis=1), options.ranks
    kept = usable & (ranks > skipped) & (ranks <= last) & (scores <= limits[:, None])
    order = draw.random(kept.shape) if options.sampling == "random" else np.arange(kept.shape[1])
    places = np.argsort(np.where(kept, order, np.inf), axis=1, kind="stable")[:, : options.negatives]
    chosen = np.zeros_like(kept)
    np.put_along_axis(chosen, places, values=True, axis=1)
    return chosen & kept


def _cosines_of_positives(
    encoder: Embedder, pairs: Pairs, vectors: NDArray[np.float32], start: int
) -> NDArray[np.float64]:
    """The lowest cosine of each anchor with its positives; `vectors` are of the anchors from `start` on."""
    own = np.flatnonzero((pairs.owners >= start) & (pairs.owners < start + len(vectors)))
    anchors = vectors[pairs.owners[own] - start].astype(np.float64)
    positives = encoder.encode(texts_of(pairs.positives, own), dimensions=vectors.shape[1]).astype(np.float64)
    lengths = np.linalg.norm(anchors, axis=1) * np.linalg.norm(positives, axis=1)
    lowest = np.full(len(vectors), np.inf)
    np.minimum.at(lowest, pairs.owners[own] - start, (anchors * positives).sum(axis=1) / np.maximum(lengths, 1e-12))
    return lowest


def _limits(positive: NDArray[np.float64], options: HardNegatives) -> NDArray[np.float64]:
    """The highest cosine of a negative, given that of the positive; a share of a negative one is further below."""
    absolute = positive - (options.margin if options.margin is not None else -np.inf)
    share = options.relative_margin
    return np.minimum(absolute, positive - abs(positive) * (1 - share) if share is not None else np.inf)


def _approximate(corpus: Index, among: Rows) -> Near:
    """Search in a graph (HNSW) of fp16 vectors. What it finds is ordered by the cosines of the stored embeddings."""
    graph = resolve_name("usearch.index:Index")(ndim=corpus.dimensions, metric="cos", dtype="f16")
    for start in tqdm(range(0, len(among), SENTENCES_PER_BLOCK), unit="block", disable=None):
        rows = among[start : start + SENTENCES_PER_BLOCK]
        graph.add(rows, corpus.floats(rows))

    def near(queries: NDArray[np.float32], top_k: int) -> Neighbours:
        found = graph.search(queries, min(top_k, len(among)))
        rows = found.keys.astype(np.int64)
        lacking = np.arange(rows.shape[1]) >= np.asarray(found.counts)[:, None]
        return rescored(queries, np.where(lacking, rows[:, :1], rows), corpus.floats, rows.shape[1])

    return near


def mined_rows(
    pairs: Pairs, anchors: Rows, negatives: Rows, corpus: Index, form: Literal["triplets", "pairs"]
) -> Iterator[tuple[object, ...]]:
    """The rows to write, in the order of the pairs: each pair with each negative of its anchor; or all pairs and, after
    the first pair of an anchor, its negatives, with labels.
    """
    found = corpus.texts_of(set(negatives.tolist()))
    bounds = np.searchsorted(anchors, np.arange(len(pairs.firsts) + 1))
    for pair, owner in enumerate(pairs.owners.tolist()):
        own = [" ".join(found[row].split()) for row in negatives[bounds[owner] : bounds[owner + 1]].tolist()]
        anchor, positive = pairs.anchors[pair], pairs.positives[pair]
        if form == "triplets":
            yield from ((anchor, positive, text) for text in own)
            continue
        yield anchor, positive, 1
        if pairs.firsts[owner] == pair:
            yield from ((anchor, text, 0) for text in own)
