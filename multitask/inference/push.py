"""Publish an export in a model repository of the Hugging Face hub, in one commit."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from minbert.errors import InputError
from minbert.files import sha256_of_file
from multitask.data.problems import aligned, reason


def check_push(repository: str, dry_run: bool) -> None:
    """Raise InputError for what can be no repository, and without a token unless nothing is sent."""
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise InputError(f"--push {repository}: {reason(error)}") from None
    if "/" not in repository:
        raise InputError(f"--push {repository}: no owner; expected OWNER/NAME")
    if not dry_run and huggingface_hub.get_token() is None:
        raise InputError(f"--push {repository}: no token; set HF_TOKEN, log in with `hf auth login`, or use --dry-run")


def what_is_pushed(folder: Path, repository: str, private: bool) -> str:
    """Where an export would go, and the size in bytes and the SHA-256 of each of its files."""
    rows = [[name, f"{path.stat().st_size:,}", sha256_of_file(path)] for name, path in _files(folder).items()]
    place = f"{constants.ENDPOINT}/{repository}"
    return f"would be sent to {place} ({'private' if private else 'public if new'}):\n" + aligned(rows)


def push(folder: Path, repository: str, private: bool) -> str:
    """Send an export in one commit; returns the repository's address. The repository is made if there is none.

    Files of other names stay in the repository. Raises InputError if the hub refuses or cannot be reached, or a
    repository that shall be private is public.
    """
    api = huggingface_hub.HfApi(token=huggingface_hub.get_token())
    with _errors_of_hub(f"--push {repository}: nothing was sent"):
        url = api.create_repo(repository, private=private or None, exist_ok=True)
        if private and not api.model_info(repository).private:
            raise InputError(
                f"--push {repository}: nothing was sent, as it is public and --private is for new repositories; "
                "make it private in its settings on the hub, or name another one"
            )
    added = [huggingface_hub.CommitOperationAdd(name, path) for name, path in _files(folder).items()]
    failed = f"--push {repository}: failed on the way; the repository has all files of this export or none of them"
    with _errors_of_hub(f"{failed}, so run the same command again"):
        message = f"Export of minbert-multitask {version('minbert-multitask')}"
        api.create_commit(repository, added, commit_message=message)
    return str(url)


def _files(folder: Path) -> dict[str, Path]:
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


@contextmanager
def _errors_of_hub(what: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # of httpx, requests or xet, as the version of huggingface_hub has it
        told = getattr(error, "server_message", None)  # what the hub says; otherwise the client's text
        raise InputError(f"{what} ({reason(Exception(told) if told else error)})") from None
