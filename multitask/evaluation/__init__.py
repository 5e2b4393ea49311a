"""Evaluation: scores of models and of embeddings, and how sure they are. Nothing here changes a model."""
