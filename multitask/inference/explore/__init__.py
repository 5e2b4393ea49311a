"""The page of the service: what a model predicts, how it embeds, what an objective would do to it, where it is wrong.

The page is a template, a stylesheet and a script of this package, and works offline. Gradio would add a hundred
megabytes of packages and loads fonts from another host, and its sliders and tables know nothing of matrices and
anchors, so it is not used.

The computations are plain functions: `word_effects`, `contrast`, `neighbours` and `dev_rows`. `explorer` holds what
they share between requests, and `routes` answers the page.
"""
