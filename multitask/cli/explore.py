"""`multitask explore`: a page to try a model, in the browser."""

import logging
import socket
import threading
import webbrowser
from dataclasses import field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from minbert.errors import InputError
from minbert.settings import Count, settings
from multitask.cli.command import Command
from multitask.cli.serve import access_token, models_by_name, need_packages
from multitask.inference.serve.limits import Limits
from multitask.runtime.options import Computing


@settings
class Explore:
    """Open a page to try a model: predictions, nearest sentences, what an objective does, and errors.

    It is the page of `serve` with dev sets, on an address that only this machine reaches, until Ctrl-C.
    """

    model: str
    """The model: a run, a model folder, all-minilm-l6-v2 or a hub id. NAME=RUN gives it a name."""
    compare: str | None = None
    """A second model to show next to it."""
    data: Path = Path("data/sample")
    """Folder with the course's files, whose dev sets are shown."""
    tasks_file: Path | None = None
    """Tasks file, which declares tasks of your own. Default: the course's tasks."""
    rows: Count | None = 2000
    """Most dev rows of each task, the first ones of its file; `none`: all."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on; 0 takes a free one."""
    browser: bool = True
    """Whether to open a browser."""
    computing: Computing = field(default_factory=Computing)


def explore(options: Explore) -> int:
    """Serve the page until a signal stops it."""
    need_packages("explore")
    import uvicorn

    from multitask.inference.explore.explorer import load_dev_sets
    from multitask.inference.explore.routes import add_page
    from multitask.inference.serve.app import create_app
    from multitask.inference.serve.guard import LOOPBACK
    from multitask.inference.serve.served_model import load_served
    from multitask.runtime.device import keep_few_kernels

    token = access_token(None)
    keep_few_kernels()
    computing = options.computing
    chosen = (options.model,) if options.compare is None else (options.model, options.compare)
    models = {
        name: load_served(model, computing.device, computing.precision)
        for name, model in models_by_name(chosen).items()
    }
    limits = Limits()
    app = create_app(models, limits, token, LOOPBACK)
    add_page(app, load_dev_sets(models, options.tasks_file or options.data, options.rows))
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", options.port))
        except OSError as error:
            raise InputError(f"--port {options.port}: {error.strerror}; choose another, or 0 for a free one") from None
        listening.listen()  # a browser that is early waits
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        logging.getLogger("multitask").info("%s (Ctrl-C stops)", address)
        if options.browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        config = uvicorn.Config(
            app,
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        uvicorn.Server(config).run(sockets=[listening])
    return 0


COMMAND = Command(
    "explore",
    Explore,
    explore,
    common=("model", "compare", "data", "tasks_file", "rows", "port", "browser", "device"),
)
