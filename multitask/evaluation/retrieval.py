"""Retrieval by cosine: published sets, sets of one's own, and how far up the ranking relevant documents come."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from multitask.base import logger
from multitask.base.random_streams import generator
from multitask.data.messages import listed, quote
from multitask.data.read_tables import open_table
from multitask.data.tables import FileRow, OpenTable, RowsFrom
from multitask.data.texts import joined, template
from multitask.evaluation.embeddings import DIGITS, EmbeddingTable, unit_vectors
from multitask.tasks.labels import number

Mask = NDArray[np.bool_]

DOCUMENTS_PER_QUERY = 10
"""Documents that a sample keeps for each of its queries, in addition to the relevant ones."""
CUT = 10
"""Ranks that nDCG counts if nothing else is said."""
CUTS = (1, 10, 100)
"""Ranks that further scores of a set of one's own count."""
QUERIES_AT_ONCE = 256


@dataclass(frozen=True)
class RetrievalData:
    """Documents, some of which are queries; a query never finds itself.

    Published sets are different sentences: those with a partner of the same meaning are queries. In a set of one's own,
    the queries come after the corpus.
    """

    sentences: list[str]  # all documents
    queries: NDArray[np.int64]  # place of each query among the documents, [queries]
    relevant: tuple[tuple[int, ...], ...]  # places of the documents that are relevant to each query
    grades: tuple[tuple[float, ...], ...] = ()  # how relevant each of them is, above 0; empty: all alike
    corpus: int | None = None  # how many of the documents, the first ones, can be found; None: all
    hidden: NDArray[np.int64] | None = None  # place of what each query does not find, [queries]; None: itself

    @classmethod
    def of_pairs(cls, pairs: Iterable[tuple[str, str, bool]], source: object) -> "RetrievalData":
        """Pairs of sentences, and whether they mean the same. Raises InputError if no two different ones do."""
        places: dict[str, int] = {}
        partners: dict[int, set[int]] = defaultdict(set)
        for first, second, same in pairs:
            one, other = (places.setdefault(text, len(places)) for text in (first, second))
            if same and one != other:
                partners[one].add(other)
                partners[other].add(one)
        if not partners:
            raise InputError(f"{source}: no two sentences mean the same; retrieval has nothing to find")
        queries = sorted(partners)
        return cls(list(places), np.array(queries), tuple(tuple(sorted(partners[query])) for query in queries))

    @property
    def scored_columns(self) -> tuple[list[str]]:
        return ([self.sentences[place] for place in self.queries],)

    def sampled(self, limit: int) -> "RetrievalData":
        """At most `limit` queries, what is relevant to them, and ten other documents a query; always the same ones."""
        rows = np.flatnonzero(drawn_places(len(self.queries), limit))
        needed = {*self.queries[rows].tolist(), *(place for row in rows for place in self.relevant[row])}
        order = generator(0, "documents of a suite", len(self.sentences)).permutation(len(self.sentences)).tolist()
        others = [place for place in order if place not in needed][: DOCUMENTS_PER_QUERY * limit]
        kept = sorted({*needed, *others})
        place_of = {old: new for new, old in enumerate(kept)}
        relevant = tuple(tuple(place_of[place] for place in self.relevant[row]) for row in rows)
        queries = np.array([place_of[place] for place in self.queries[rows].tolist()])
        return RetrievalData([self.sentences[place] for place in kept], queries, relevant)


CORPUS, QUERIES = "corpus", "queries"


def retrieval_files(folder: Path, split: str) -> list[Path]:
    """The files of a set: corpus, queries, and what is relevant in a split. Raises InputError if one is missing."""
    found = []
    for name in (CORPUS, QUERIES, f"qrels/{split}"):
        there = [path for path in sorted((folder / name).parent.glob(f"{Path(name).name}.*")) if path.is_file()]
        if len(there) != 1:
            raise InputError(
                f"{folder}: {len(there)} files {name}.*; expected a set as BEIR lays it out, with one file "
                f"{CORPUS}.jsonl, {QUERIES}.jsonl and qrels/{split}.tsv each"
            )
        found += there
    return found


def is_retrieval_set(folder: Path) -> bool:
    """Whether a folder has a corpus."""
    return any(folder.glob(f"{CORPUS}.*"))


def read_retrieval(folder: Path, split: str) -> RetrievalData:
    """A set of one's own, in BEIR's layout (Thakur et al. 2021, arXiv 2104.08663).

    `corpus` and `queries` have the columns `_id` and `text`, and perhaps `title`, which comes first; `qrels/SPLIT` has
    `query-id`, `corpus-id` and perhaps `score`, above 0 if the document is relevant. Any format of a table will do.
    Only queries with a relevant document are scored. As in BEIR's evaluator, a query ignores the document that has its
    id; here only if that is not relevant to it. Raises InputError for anything else that is wrong.
    """
    corpus, asked, judged = (open_table(RowsFrom(str(path))) for path in retrieval_files(folder, split))
    documents, queries = _texts_by_id(corpus), _texts_by_id(asked)
    place_of = {identifier: place for place, identifier in enumerate(documents)}
    judged.require(["query-id", "corpus-id"])
    further = [name for name in judged.columns if name not in ("", "query-id", "corpus-id")]
    if further and not judged.has("score"):
        there = f"there is {listed(further)}"
        logger.warning("%s: no column score, so the documents of all rows count as relevant; %s", judged.name, there)
    every: dict[str, dict[int, float]] = defaultdict(dict)
    for line, row in judged.rows:
        query = _known(judged, line, row, "query-id", queries, asked)
        document = _known(judged, line, row, "corpus-id", documents, corpus)
        grade = number(row.get("score", 1))
        if grade is None or math.isnan(grade):
            raise InputError(f"{judged.place(line)}: score is {quote(row.get('score'))}; expected a number")
        if place_of[document] in every[query]:
            pair = f"query-id {quote(query)} with corpus-id {quote(document)}"
            raise InputError(f"{judged.place(line)}: {pair} occurs twice; expected each once")
        every[query][place_of[document]] = grade
    above = {query: {place: grade for place, grade in found.items() if grade > 0} for query, found in every.items()}
    grades = {query: found for query, found in above.items() if found}
    if not grades:
        raise InputError(f"{judged.name}: no document is relevant to a query; retrieval has nothing to find")
    return RetrievalData(
        [*documents.values(), *(queries[query] for query in grades)],
        np.arange(len(grades)) + len(documents),
        tuple(tuple(found) for found in grades.values()),
        tuple(tuple(found.values()) for found in grades.values()),
        len(documents),
        np.array(
            [
                own if place_of.get(query) in found else place_of.get(query, own)
                for own, (query, found) in enumerate(grades.items(), len(documents))
            ]
        ),
    )


def _texts_by_id(table: OpenTable) -> dict[str, str]:
    table.require(["_id", "text"])
    made = template(joined([*["title"] * table.has("title"), "text"]))
    found: dict[str, str] = {}
    for line, row in table.rows:
        if (given := row.get("_id")) is None or not (identifier := str(given)).strip():
            raise InputError(f"{table.place(line)}: _id is empty; expected an id for each text")
        if identifier in found:
            raise InputError(f"{table.place(line)}: _id {quote(identifier)} occurs twice; expected each once")
        try:
            found[identifier] = made.text_of(row, table.format)
        except ValueError as error:
            raise InputError(f"{table.place(line)}: {error}") from None
    return found


def _known(table: OpenTable, line: int, row: FileRow, column: str, ids: Mapping[str, Any], id_table: OpenTable) -> str:
    if (identifier := str(row.get(column))) not in ids:
        raise InputError(
            f"{table.place(line)}: {column} {quote(identifier)} is not an _id of {Path(id_table.name).name}"
        )
    return identifier


def drawn_places(size: int, count: int) -> Mask:
    """The rows of a sample: a mask [size] with `count` random places, or all places if there are not more."""
    rows = np.zeros(size, bool)
    rows[generator(0, "rows of a suite", size).permutation(size)[:count]] = True
    return rows


def query_scores(data: RetrievalData, table: EmbeddingTable) -> dict[str, NDArray[np.float64]]:
    """Scores of each query by name, [queries] each, from 0 to 1.

    `ndcg` is the normalised discounted cumulative gain of the first ten documents (Järvelin & Kekäläinen 2002), with
    the grades of relevance as gains; `mrr` is the reciprocal rank of the first relevant document (Voorhees 1999). A set
    of one's own has both of the first 1, 10 and 100 documents, too, and which share of the relevant ones is among these
    (`recall@10`). Of equal cosines, less relevant documents rank first.
    """
    vectors = unit_vectors(table[data.sentences])
    cuts = () if data.corpus is None else CUTS
    hidden = data.queries if data.hidden is None else data.hidden
    found: dict[str, list[float]] = defaultdict(list)
    for start in range(0, len(data.queries), QUERIES_AT_ONCE):
        block = data.queries[start : start + QUERIES_AT_ONCE]
        similarities = (vectors[block] @ vectors.T).round(DIGITS)
        similarities[np.arange(len(block)), hidden[start : start + QUERIES_AT_ONCE]] = -np.inf
        for offset, row in enumerate(similarities[:, : data.corpus]):
            relevant = np.array(data.relevant[start + offset])
            grades = np.array(data.grades[start + offset]) if data.grades else np.ones(len(relevant))
            order = np.lexsort((grades, -row[relevant]))
            others = np.sort(np.delete(row, relevant))
            before = len(others) - np.searchsorted(others, row[relevant][order], side="left")
            ranks = before + np.arange(1, len(order) + 1)
            for name, value in _scores(ranks, grades[order], cuts).items():
                found[name].append(value)
    return {name: np.array(values) for name, values in found.items()}


def _scores(ranks: NDArray[np.int64], grades: NDArray[np.float64], cuts: tuple[int, ...]) -> dict[str, float]:
    """A query's scores, given the ranks of the relevant documents from 1, lowest first, and their grades."""
    best = np.sort(grades)[::-1]

    def ndcg(cut: int) -> float:
        gains = grades[ranks <= cut] / np.log2(1 + ranks[ranks <= cut])
        ideal = best[:cut] / np.log2(1 + np.arange(1, len(best[:cut]) + 1))
        return float(gains.sum() / ideal.sum())

    scores = {"ndcg": ndcg(CUT), "mrr": float(1 / ranks[0])}
    for cut in cuts:
        scores[f"ndcg@{cut}"] = ndcg(cut)
        scores[f"mrr@{cut}"] = scores["mrr"] if ranks[0] <= cut else 0.0
        scores[f"recall@{cut}"] = float(np.mean(ranks <= cut))
    return scores
