"""What a task is: files, loss, predictions, scores."""
