"""Commands that answer over HTTP until a signal stops them: serve and explore."""

import os
import re
import socket
import threading
import webbrowser
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from minbert.errors import InputError
from minbert.files import read_text
from minbert.settings import Count, settings
from multitask.base import logger
from multitask.base.options import Computing
from multitask.cli.arguments import Command
from multitask.cli.use_models import Data
from multitask.service.limits import Limits

if TYPE_CHECKING:
    from multitask.models.multitask_model import MultitaskModel

TOKEN = "MULTITASK_TOKEN"
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


def serve(options: Serve) -> None:
    """Serve until a signal stops it."""
    from multitask.service.app import LOOPBACK, create_app

    token, models = access_token(options.token_file), _load(options.model, options, keep_layers=False)
    # Other sites' pages do not know the token, so with one the service may have any name.
    app = create_app(models, options.limits, token, LOOPBACK if token is None and options.host in LOOPBACK else None)
    if token is None and options.host not in LOOPBACK:
        logger.warning(
            "%s: everyone who reaches this address may ask; --token-file or %s sets a token", options.host, TOKEN
        )
    try:
        _server(app, int(options.limits.timeout) + 1, host=options.host, port=options.port).run()
    except SystemExit:  # uvicorn has logged why
        where, expected = f"{options.host}, port {options.port}", "an address of this machine and a free port"
        raise InputError(f"cannot listen at {where}; --host and --port: expected {expected} (0 finds one)") from None


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


def explore(options: Explore) -> None:
    """Serve the page until a signal stops it."""
    from multitask.service.app import LOOPBACK, create_app
    from multitask.service.explorer import load_dev_sets
    from multitask.use.model_data import data_for

    token = access_token(None)
    models = _load(
        [model for model in (options.model, options.compare) if model is not None], options, keep_layers=True
    )
    [model] = models_by_name([options.model]).values()
    named = options.tasks_file or options.data
    try:
        dev_sets = load_dev_sets(models, data_for(model, named).path, options.rows)
    except InputError as error:
        if named is not None:
            raise
        logger.warning("the page has no dev sets: %s", error)
        dev_sets = {}
    app = create_app(models, Limits(), token, LOOPBACK, dev_sets)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", options.port))
        except OSError as error:
            raise InputError(f"--port {options.port}: {error.strerror}; choose another, or 0 for a free one") from None
        listening.listen()  # a browser that is early waits
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        logger.info("%s (Ctrl-C stops)", address)
        if options.browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        _server(app, 1).run(sockets=[listening])


def models_by_name(models: Sequence[str]) -> dict[str, str]:
    """Models by name. Raises InputError if two have the same."""
    found: dict[str, str] = {}
    for text in models:
        name, separator, model = text.partition("=")
        if not separator or Path(text).exists() or not re.fullmatch(r"[\w.-]+", name):
            name, model = Path(text).resolve().name if Path(text).exists() else text, text
        if name in found:
            raise InputError(f"--model: two models are named {name}; name them with NAME=RUN")
        found[name] = model
    return found


def access_token(file: Path | None) -> str | None:
    """The token, from the file or the environment. Raises InputError for one that no header can bear."""
    if file is None:
        source, token = TOKEN, os.environ.get(TOKEN)
    else:
        source, token = str(file), read_text(file).strip()
    if token is not None and not re.fullmatch(r"[!-~]+", token):
        raise InputError(f"{source}: expected one line of visible ASCII characters without spaces")
    return token


def _load(models: Sequence[str], computing: Computing, keep_layers: bool) -> "dict[str, MultitaskModel]":
    from multitask.service.served_model import load_served

    named = models_by_name(models)
    return {
        name: load_served(model, computing.device, computing.precision, keep_layers) for name, model in named.items()
    }


def _server(app: Any, seconds_to_end: int, **address: Any) -> Any:
    import uvicorn

    config = uvicorn.Config(
        app,
        **address,
        access_log=False,  # /metrics counts
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=seconds_to_end,
    )
    return uvicorn.Server(config)


COMMANDS = (Command("serve", Serve, serve, extra="serve"), Command("explore", Explore, explore, extra="serve"))
