"""`python -m multitask`."""

import sys

from multitask.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
