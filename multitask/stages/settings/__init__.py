"""Settings and registration of stages, one a file. They do not import torch, because `--help` imports all of them."""
