"""Read, check, download, tokenise and batch data, and record what a model was trained on."""
