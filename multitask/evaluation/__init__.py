"""Evaluation: scores of models, by which protocol, and how sure they are. Nothing here trains a model."""
