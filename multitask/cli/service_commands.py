"""The options of commands that answer over HTTP, which `multitask.cli.serve` carries out. Imports nothing heavy."""

from dataclasses import field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from minbert.errors import InputError
from minbert.settings import Count, settings
from multitask.base.options import Computing
from multitask.cli.arguments import USE, Command
from multitask.cli.commands import Data
from multitask.service.limits import Limits

Port = Annotated[int, Field(ge=0, le=65535)]


@settings
class Serve(Computing):
    """Answer requests for predictions, embeddings and similarities over HTTP, until SIGTERM or Ctrl-C.

    Requests that were accepted by then are still answered. / is a page to try the models, and /docs describes the
    routes. If the environment variable MULTITASK_TOKEN is set, requests must send its value as a token.
    """

    model: tuple[str, ...] = field(kw_only=True)
    """The models: runs, model folders, all-minilm-l6-v2 or hub ids. NAME=RUN gives a model a name; otherwise it is the
    folder's. Requests that name no model get the first."""
    host: str = "127.0.0.1"
    """Address to listen on. The default can only be reached from this machine."""
    port: Port = 8000
    """Port to listen on; 0 takes a free one."""
    token_file: Path | None = None
    """File with the token that requests must send. Default: the environment variable MULTITASK_TOKEN, or no token."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.model:
            raise InputError("--model is empty; expected at least one model")


@settings
class Explore(Computing, Data):
    """Open a page to try a model: predictions, nearest sentences, what an objective does, and errors.

    It is the page of `serve` with dev sets, on an address that only this machine reaches, until Ctrl-C.
    """

    model: str = field(kw_only=True)
    """The model: a run (`last`: the latest one), a model folder, all-minilm-l6-v2 or a hub id. NAME=RUN gives
    it a name."""
    compare: str | None = None
    """A second model to show next to it."""
    rows: Count | None = 2000
    """Show at most this many dev rows of each task, the first ones of its file; `none`: all."""
    port: Port = 8000
    """Port to listen on; 0 takes a free one."""
    browser: bool = True
    """Whether to open a browser."""


SERVICE_COMMANDS = tuple(
    Command(name, options, f"multitask.cli.serve:{name}", USE, extra="serve")
    for name, options in {"serve": Serve, "explore": Explore}.items()
)
