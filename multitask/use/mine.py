"""Hard negatives for pairs of sentences: texts of a corpus that are near an anchor and not known to mean the same.

Source of ranks and margins: NV-Retriever (arXiv 2407.15831, section 3.1). Options mean what they mean in
`mine_hard_negatives` of sentence-transformers, except that ranks count before margins, not after them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch.nn.functional import cosine_similarity

from minbert.config import Long
from minbert.errors import InputError
from multitask.base import logger
from multitask.base.progress import RowsDone
from multitask.base.random_streams import generator
from multitask.data.contamination import Hashes, hash_sentences
from multitask.data.examples import RowNumbers, TextCounts
from multitask.data.messages import listed
from multitask.data.read_tables import open_pairs, open_table
from multitask.data.tables import Format, RowsFrom, suffixes
from multitask.data.texts import in_words, prompt_of, template, texts_of_rows, with_content
from multitask.data.write_tables import table_writer
from multitask.models.sentence_encoder import Embedder
from multitask.tasks.sources import PAIRED, Pairs, TaskTexts, Triplets, source_named, unlabelled
from multitask.use.embed import Index, embed_file
from multitask.use.hard_negatives import HardNegatives
from multitask.use.search import search

ANCHORS_PER_BLOCK = 4096
COLUMNS = {"triplets": Triplets.columns, "pairs": (*Pairs.columns, "label")}

PositivePairs = Sequence[tuple[str, ...]]
"""Anchors and positives: sentences with the same meaning, without the words that a template has around them."""
WITHOUT_WORDS = ("text", "text")
"""Templates of anchors and of positives without such words."""


def formats_of(pairs: str, corpus: Path | None, column: str | None, written: Format) -> tuple[Format, Format]:
    """How the pairs and the corpus are written: each is written as far as that means something to its format.

    The lines of a text file have no separator. Raises InputError for what means nothing to either.
    """
    source = RowsFrom(pairs)
    form_of_pairs = source.form if source.path else ".parquet"  # which a data set of the hub is read as
    of_pairs = Format() if pairs in PAIRED else written.meant_for(form_of_pairs)
    of_corpus = Format()
    if corpus is not None and corpus.suffix != ".npy":
        form = suffixes(corpus)[0] or ".txt"
        own = replace(written, separator=None) if form == ".txt" and column is None else written
        of_corpus = own.meant_for(form)
    if idle := written.changed().keys() - of_pairs.changed().keys() - of_corpus.changed().keys():
        raise InputError(f"neither the pairs nor the corpus has {listed(sorted(idle))}, being of another format")
    return of_pairs, of_corpus


def read_pairs(
    name: str, columns: Sequence[str], data: Path, file_format: Format = Format()
) -> tuple[PositivePairs, Sequence[str], bool]:
    """Pairs of a table, or of a source of `pretrain` in a data folder; the templates of anchors and positives; and
    whether pairs are known to mean the same.

    Rows with a blank sentence are left out, with a warning. The default columns are those of triplets or of pairs; of a
    text file, they are the two sentences of a line with a tab between them. Raises InputError if there is no pair, or
    if columns are named of a source, which has its own.
    """
    if name in PAIRED:
        if columns:
            raise InputError(f"--text names columns of a table, but {name} is a source with its own; leave it out")
        source = source_named(name, data, option="pairs")
        pairs = list(zip(*source.rows(negative_pairs=False).sentences[:2], strict=True))
        return pairs, source.task.files.text if isinstance(source, TaskTexts) else WITHOUT_WORDS, source.same_meaning
    file = RowsFrom(name)
    lines = file.form == ".txt" and not file_format.separator
    table = unlabelled((open_pairs if lines else open_table)(file, file_format))
    if not columns:
        columns = next((c for c in (Triplets.columns[:2], Pairs.columns) if set(c) <= set(table.columns)), ())
        if not columns:
            raise InputError(
                f"{name}: the columns are {listed(table.columns)}; name those of the sentences with --text, or give "
                "the --separator that the file has"
            )
    templates = [template(column).content for column in columns]
    table.require([column for made in templates for column in made.columns])
    read = [(row[0], texts) for row in table.rows for texts in texts_of_rows(table, [row], templates)]
    table.warn("left out", "without two sentences", [number for number, texts in read if not all(texts)])
    found = [texts for _, texts in read if all(texts)]
    if not found:
        raise InputError(f"{name}: no pair; expected at least one with two sentences")
    return found, columns, False


@contextmanager
def index_of(
    encoder: Embedder,
    pairs: PositivePairs,
    corpus: Path | None,
    column: str | None,
    output: Path,
    file_format: Format,
    written: Sequence[str] = WITHOUT_WORDS,
) -> Iterator[Index]:
    """The embeddings of a corpus: an .npy file, a text file or table of its format, or all sentences of the pairs.

    The latter are written into a folder next to the output, which is removed at the end. They stand in the words of the
    positives; `written` are the templates of anchors and positives.
    """
    if corpus is not None and corpus.suffix == ".npy":
        yield Index.open(corpus, encoder)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    source: Path | str = corpus or "sentences of the pairs"
    with TemporaryDirectory(prefix=f".{output.name}.", suffix=".tmp", dir=output.parent) as folder:
        if corpus is None:
            corpus, file_format = Path(folder, "sentences.jsonl"), Format()
            column = with_content(written[1], "text")
            with table_writer(corpus, ["text"]) as write:
                write([{"text": text} for text in dict.fromkeys(chain(*zip(*pairs, strict=True)))])
        encoder.counts = TextCounts()  # earlier ones are of other texts
        embed_file(encoder, corpus, made := Path(folder, "corpus.npy"), column, normalize=True, file_format=file_format)
        encoder.counts.warn(source)
        yield Index.open(made, encoder)


def negatives_of(
    encoder: Embedder,
    pairs: PositivePairs,
    corpus: Index,
    options: HardNegatives,
    same_meaning: bool = False,
    written: Sequence[str] = WITHOUT_WORDS,
) -> dict[int, list[int]]:
    """The negatives of each anchor, by the anchor's hash: rows of the corpus, nearest first.

    Of texts in the corpus that are equal but for case, space, marks and the words of a template, only the first can be
    a negative, and an empty one cannot. Anchors that are equal but for these are one. No text is a negative that has a
    pair with the anchor or, if all pairs have the `same_meaning`, that further pairs link with it.
    """
    hashes = hash_sentences(corpus.texts(contents=True))
    among = np.sort(np.unique(hashes, return_index=True)[1])
    if duplicates := len(hashes) - len(among):
        logger.info("%d of the corpus' %d texts are duplicates, but for case, space and marks", duplicates, len(hashes))
    among = among[hashes[among] != hash_sentences([""])]
    there = frozenset(hashes.tolist())
    own: dict[int, list[int]] = defaultdict(list)  # the pairs of each anchor
    hashed = np.stack([hash_sentences(texts) for texts in zip(*pairs, strict=True)])  # [2, pairs]
    for pair, anchor in enumerate(hashed[0].tolist()):
        own[anchor].append(pair)
    known = {text: there & texts for text, texts in (linked(hashed) if same_meaning else partners(hashed)).items()}
    most_known = max(len(known[anchor]) for anchor in own)
    draw = generator(options.seed, "hard negatives")
    anchors, read = list(own), _in_words(pairs, written)
    found: dict[int, list[int]] = {}
    with RowsDone(len(anchors), "anchors") as shown:
        for start in range(0, len(anchors), ANCHORS_PER_BLOCK):
            block = anchors[start : start + ANCHORS_PER_BLOCK]
            texts = [read[own[anchor][0]][0] for anchor in block]
            width, prompt = corpus.vectors.shape[1], prompt_of(written[0])
            vectors = encoder.encode(texts, dimensions=width, prompt=prompt, long=corpus.long)
            nearest = search(vectors, corpus.vectors, options.ranks[1] + most_known, among=among)
            positives = [[read[pair][1] for pair in own[anchor]] for anchor in block]
            limits = _limits(encoder, vectors, positives, options, corpus.long, prompt_of(written[1]))
            for anchor, scores, rows, limit in zip(block, *nearest, limits, strict=True):
                usable = np.array([text not in known[anchor] for text in hashes[rows].tolist()])
                found[anchor] = rows[choose_negatives(scores, usable, limit, options, draw)].tolist()
            shown.add(len(block))
    encoder.counts.warn("mined texts")
    return found


def _in_words(pairs: PositivePairs, written: Sequence[str]) -> PositivePairs:
    """The pairs in the words of their templates."""
    words = [template(text).around for text in written]
    return list(zip(*in_words(words, list(zip(*pairs, strict=True))), strict=True))


def partners(pairs: Hashes) -> dict[int, set[int]]:
    """Each text with those that it is paired with, either way, given hashes [2, pairs]."""
    found: dict[int, set[int]] = defaultdict(set)
    for anchor, positive in pairs.T.tolist():
        found[anchor] |= {anchor, positive}
        found[positive] |= {anchor, positive}
    return found


def linked(pairs: Hashes) -> dict[int, set[int]]:
    """Each text with all that pairs link with it, in any number of steps, given hashes [2, pairs]."""
    texts, ends = np.unique(pairs, return_inverse=True)
    graph = coo_array((np.ones(pairs.shape[1]), tuple(ends.reshape(2, -1))), (len(texts), len(texts)))
    group_of = connected_components(graph, directed=False)[1]
    groups: dict[int, set[int]] = defaultdict(set)
    for text, group in zip(texts.tolist(), group_of.tolist(), strict=True):
        groups[group].add(text)
    return {text: groups[group] for text, group in zip(texts.tolist(), group_of.tolist(), strict=True)}


def choose_negatives(
    scores: NDArray[np.float32],
    usable: NDArray[np.bool_],
    limit: float,
    options: HardNegatives,
    draw: np.random.Generator,
) -> RowNumbers:
    """Which of an anchor's candidates, nearest first, are taken. Those that are not usable have no rank.

    `limit` is the highest cosine that a negative may have.
    """
    ranked = np.flatnonzero(usable)[slice(*options.ranks)]
    kept = ranked[scores[ranked] <= limit]
    if options.sampling == "random":
        kept = kept[draw.random(len(scores))[kept].argsort()]
    return np.sort(kept[: options.negatives])


def _limits(
    encoder: Embedder,
    anchors: NDArray[np.float32],
    positives: Sequence[Sequence[str]],
    options: HardNegatives,
    long: Long,
    prompt: str | None,
) -> NDArray[np.float64]:
    """The highest cosine that a negative of each anchor may have, given the positives of each."""
    vectors = encoder.encode(list(chain(*positives)), dimensions=anchors.shape[1], prompt=prompt, long=long)
    counts = np.array([len(texts) for texts in positives])
    repeated = torch.from_numpy(anchors).double().repeat_interleave(torch.from_numpy(counts), 0)
    cosines = cosine_similarity(repeated, torch.from_numpy(vectors).double()).numpy()
    lowest = np.minimum.reduceat(cosines, counts.cumsum() - counts)
    absolute = lowest - (options.margin if options.margin is not None else -np.inf)
    share = options.relative_margin  # of a negative cosine, a limit is further below
    return np.minimum(absolute, lowest - abs(lowest) * (1 - share) if share is not None else np.inf)


def mined_rows(
    pairs: PositivePairs,
    negatives: Mapping[int, Sequence[int]],
    corpus: Index,
    form: Literal["triplets", "pairs"],
    written: Sequence[str] = WITHOUT_WORDS,
) -> Iterator[tuple[object, ...]]:
    """The rows to write, in the order of the pairs: each pair with each negative of its anchor; or all pairs and, after
    the first pair of an anchor, its negatives, with labels. Texts have no line breaks, so that trainings can read them.
    """
    found = corpus.texts_of({row for rows in negatives.values() for row in rows})
    left = dict(negatives)
    anchors = hash_sentences(anchor for anchor, _ in pairs).tolist()
    for key, texts in zip(anchors, _in_words(pairs, written), strict=True):
        anchor, positive = (" ".join(text.split()) for text in texts)
        if form == "pairs":
            yield anchor, positive, 1
        for row in negatives[key] if form == "triplets" else left.pop(key, ()):
            text = " ".join(found[row].split())
            yield (anchor, positive, text) if form == "triplets" else (anchor, text, 0)
