"""The page of the service: what a model predicts, how it embeds, what an objective would do to it, where it is wrong.

The service renders the views and all answers from templates, and a small script inserts them. The page works offline.
Gradio would add a hundred megabytes of packages and loads fonts from another host, and its tables know nothing of
matrices and anchors, so it is not used.

The computations are plain functions: `explain`, `contrast` and `neighbours`. `explorer` holds the dev sets and what
requests share, and `routes` answers the page.
"""
