"""Search in your own texts by meaning: embed them once, then ask.

Run from the checkout: python examples/search_own_texts.py [FILE [QUERY ...]]
FILE has one text a line.
"""

import sys
from pathlib import Path

from multitask import SentenceEncoder
from multitask.use.search import search

MESSAGES = Path("data/own/new_messages.txt")
QUERIES = ("I was charged twice", "where is my parcel?")


def main(file: Path = MESSAGES, queries: tuple[str, ...] = QUERIES, model: str = "all-minilm-l6-v2") -> list[list[str]]:
    """Print and return the three nearest texts of each query."""
    encoder = SentenceEncoder.load(model)  # or the folder of a run of pretrain or finetune
    texts = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    embeddings = encoder.encode(texts)  # [texts, 384]; np.save keeps them for the next time
    found = search(encoder.encode(list(queries)), embeddings, top_k=min(3, len(texts)))
    nearest = [[texts[i] for i in row] for row in found.indices]
    for query, scores, rows in zip(queries, found.scores, nearest, strict=True):
        print(query)
        for score, text in zip(scores, rows, strict=True):
            print(f"  {score:.2f}  {text}")
    return nearest


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]), *([tuple(sys.argv[2:])] if sys.argv[2:] else []))
