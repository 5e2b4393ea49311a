"""What every other part stands on: device, ranks, random streams, errors, folders of runs and their keys."""

import logging

logger = logging.getLogger("multitask")
