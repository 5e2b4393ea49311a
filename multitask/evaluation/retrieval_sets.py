"""Sets of the retrieval suite: sentences, and which of them mean the same.

Every different sentence of a retrieval set is a document, and every sentence with a partner of the same meaning is a
query. A query never finds itself.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from multitask.evaluation.senteval_files import drawn, read_sick
from multitask.runtime.random_streams import generator
from multitask.tasks.declarations import load_tasks
from multitask.tasks.read_examples import load_rows

DOCUMENTS_PER_QUERY = 10
"""Documents that a sample keeps for each of its queries, in addition to the relevant ones."""
SAME_MEANING = 4.0
"""Relatedness (1 to 5) from which two sentences of SICK count as relevant to each other."""


@dataclass(frozen=True)
class RetrievalData:
    """Queries, documents, and which documents are relevant to which query."""

    documents: list[str]  # different sentences, the queries among them
    queries: NDArray[np.int64]  # place of each query among the documents, [queries]
    # places of the documents that are relevant to each query, never the query itself
    relevant: tuple[tuple[int, ...], ...]

    @classmethod
    def of_pairs(cls, pairs: Iterable[tuple[str, str, bool]], source: str) -> "RetrievalData":
        """Every sentence of a pair that means the same is a query for the other one; all sentences are documents.

        Args:
            pairs: two sentences, and whether they mean the same.
            source: of the pairs, for errors.

        Raises:
            InputError: no two different sentences mean the same.
        """
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
        """The queries' sentences."""
        return ([self.documents[place] for place in self.queries],)

    @property
    def sentences(self) -> list[str]:
        """All sentences that are embedded."""
        return self.documents

    def sampled(self, limit: int) -> "RetrievalData":
        """At most `limit` queries, what is relevant to them, and ten other documents a query; always the same ones."""
        rows = np.flatnonzero(drawn(len(self.queries), limit))
        needed = {*self.queries[rows].tolist(), *(place for row in rows for place in self.relevant[row])}
        order = generator(0, "documents of a suite", len(self.documents)).permutation(len(self.documents))
        others = [int(place) for place in order if place not in needed][: DOCUMENTS_PER_QUERY * limit]
        kept = sorted({*needed, *others})
        place_of = {old: new for new, old in enumerate(kept)}
        relevant = tuple(tuple(place_of[place] for place in self.relevant[row]) for row in rows)
        queries = np.array([place_of[place] for place in self.queries[rows].tolist()])
        return RetrievalData([self.documents[place] for place in kept], queries, relevant)


def read_quora(paths: Sequence[Path]) -> RetrievalData:
    """The course's dev pairs of Quora questions; duplicates are relevant to each other."""
    rows = load_rows(load_tasks(paths[0].parent)["paraphrase"], "dev", labelled=True)
    assert rows.labels is not None, "labelled rows have labels"
    return RetrievalData.of_pairs(zip(*rows.sentences, rows.labels == 1, strict=True), str(paths[0]))


def read_related(paths: Sequence[Path]) -> RetrievalData:
    """Pairs of SICK's test set; those with a high relatedness are relevant to each other."""
    pairs = read_sick(paths)
    return RetrievalData.of_pairs(zip(*pairs.columns, pairs.gold >= SAME_MEANING, strict=True), str(paths[0]))
