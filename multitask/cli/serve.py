"""`multitask serve`: predictions and embeddings over HTTP."""

import importlib.util
import logging
import os
import re
from dataclasses import field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from minbert.errors import InputError
from minbert.settings import settings
from multitask.cli.command import Command
from multitask.inference.serve.limits import Limits
from multitask.runtime.options import Computing

TOKEN = "MULTITASK_TOKEN"
PACKAGES = ("fastapi", "prometheus_client", "uvicorn")


@settings
class Serve:
    """Answer requests for predictions, embeddings and similarities over HTTP, until SIGTERM or Ctrl-C.

    What was accepted until then is still answered. / is a page to try the models, and /docs describes the routes. If
    the environment variable MULTITASK_TOKEN is set, requests must bear it as a token.
    """

    model: tuple[str, ...]
    """The models: runs, model folders, all-minilm-l6-v2 or hub ids. NAME=RUN gives a model a name; otherwise it is the
    folder's. Requests that name no model get the first."""
    host: str = "127.0.0.1"
    """Address to listen on. The default can only be reached from this machine."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on; 0 takes a free one."""
    token_file: Path | None = None
    """File with the token that requests must bear. Default: the environment variable MULTITASK_TOKEN, or no token."""
    limits: Limits = field(default_factory=Limits)
    computing: Computing = field(default_factory=Computing)

    def __post_init__(self) -> None:
        if not self.model:
            raise InputError("--model is empty; expected at least one model")


def serve(options: Serve) -> int:
    """Serve until a signal stops it."""
    need_packages("serve")
    import uvicorn

    from multitask.inference.explore.routes import add_page
    from multitask.inference.serve.app import create_app
    from multitask.inference.serve.guard import LOOPBACK
    from multitask.inference.serve.served_model import load_served
    from multitask.runtime.device import keep_few_kernels

    token = access_token(options.token_file)
    keep_few_kernels()
    computing = options.computing
    models = {
        name: load_served(model, computing.device, computing.precision)
        for name, model in models_by_name(options.model).items()
    }
    # Other sites' pages do not know the token, so with one the service may have any name.
    app = create_app(models, options.limits, token, LOOPBACK if token is None and options.host in LOOPBACK else None)
    add_page(app, {})
    if token is None and options.host not in LOOPBACK:
        logging.getLogger("multitask").warning(
            "%s: everyone who reaches this address may ask; --token-file or %s sets a token", options.host, TOKEN
        )
    uvicorn.run(
        app,
        host=options.host,
        port=options.port,
        access_log=False,  # /metrics counts
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=int(options.limits.timeout) + 1,
    )
    return 0


def need_packages(command: str) -> None:
    """Raise InputError, which says how to install them, if packages of the extra are missing."""
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise InputError(f'{command} needs {", ".join(missing)}; install with: pip install ".[serve]"')


def models_by_name(models: tuple[str, ...]) -> dict[str, str]:
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
        source, token = str(file), file.read_text(encoding="utf-8", errors="replace").strip()
    if token is not None and not re.fullmatch(r"[!-~]+", token):
        raise InputError(f"{source}: expected one line of visible ASCII characters without spaces")
    return token


COMMAND = Command("serve", Serve, serve, common=("model", "host", "port", "token_file", "texts", "timeout", "device"))
