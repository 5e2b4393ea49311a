"""Grids of stages: tables of trainings on this machine or on a cluster, their results and reports."""
