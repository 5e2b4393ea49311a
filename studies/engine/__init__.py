"""Grids of stages: recipes, plans, engines, records."""
