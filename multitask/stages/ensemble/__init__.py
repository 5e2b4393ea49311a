"""Several fine-tuned models made one."""
