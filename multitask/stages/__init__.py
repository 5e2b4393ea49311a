"""Stages: each a function from a configuration and its inputs to an artefact."""
