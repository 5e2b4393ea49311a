"""What the service accepts."""

from typing import Annotated

from pydantic import Field

from minbert.settings import Count, settings


@settings
class Limits:
    """What the service accepts. A request beyond a limit is answered with a 4xx, one for a full queue with 503."""

    texts: Count = 256
    """Most texts in a request. A pair counts as two."""
    characters: Count = 10_000
    """Most characters in a text. Of long texts, models read the tokens that their tasks declare."""
    body: Count = 4 * 2**20
    """Largest body of a request, in bytes."""
    queue: Count = 4096
    """Most texts that wait for each model; a text counts for each way in which tasks read it. A request that does not
    fit is answered with 503 and Retry-After, unless nothing waits."""
    timeout: Annotated[float, Field(ge=0.001)] = 30.0
    """Seconds until a request that is still waiting is answered with 504."""
