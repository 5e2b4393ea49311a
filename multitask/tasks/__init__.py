"""What a task is: files, loss, predictions, scores."""

MAIN_TASKS = ("sentiment", "paraphrase", "similarity")
"""The course's tasks, which a training takes if none are named. Here, because tables and `--help` do without torch."""
QUORA_TASK = "paraphrase"
"""The task whose labelled pairs are the source `quora`. `quora_share` is the share of its rows in an epoch."""
