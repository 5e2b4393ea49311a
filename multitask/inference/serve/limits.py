"""What the service accepts."""

from dataclasses import dataclass

from multitask.runtime.options import check_range


@dataclass(frozen=True)
class Limits:
    """What the service accepts; a request beyond a limit is refused with a 4xx, a full queue with 503."""

    texts: int = 256
    """Most texts in a request. A pair counts as two."""
    characters: int = 10_000
    """Most characters in a text. Models read only its first tokens."""
    body: int = 4 * 2**20
    """Largest body of a request, in bytes."""
    queue: int = 4096
    """Most texts that wait for each model. A request that does not fit is answered with 503 and Retry-After."""
    timeout: float = 30.0
    """Seconds until a request that is still waiting is answered with 504. Its headers, and then its body, may take as
    long to arrive, and the client to read the answer."""

    def __post_init__(self) -> None:
        check_range(self, 1, ("texts", "characters", "body"))
        check_range(self, self.texts, ("queue",))
        check_range(self, 0.001, ("timeout",))
