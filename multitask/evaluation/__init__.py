"""Evaluation: what a model scores, by whose protocol, and nothing that trains."""
