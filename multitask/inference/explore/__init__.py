"""The page of the service: what a model predicts, how it embeds, what an objective would do to it, where it is wrong.

The service renders the page from templates, so it has no script and works offline. Gradio would add a hundred
megabytes of packages and loads fonts from another host, and its tables know nothing of matrices and anchors.

The computations are plain functions in `explain`, `contrast` and `map_of_sentences`. `explorer` holds the dev sets and
what requests share, and `routes` answers the page.
"""
