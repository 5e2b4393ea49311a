"""A run is a value: its folder is named by its key, a hash of everything that decides its bits (see `RunKey`).

    runs/<stage>-<name>-<key>/
        config.json    the stage's full configuration
        inputs.json    keys of parents, hashes of data and start weights, device and precision, versions, the machine
        ...            what the stage writes
        state/         while running, for resume
        DONE           written last: hash, size and time of every file that it vouches for, and how long the run took

Running the same stage again finds DONE and computes nothing; a run that was killed goes on from its state; a second
process that wants the same artefact waits for the first.
"""

import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from minbert.download_checkpoint import resolve
from minbert.errors import InputError
from minbert.files import before_checksum, json_text, nan_for_null, read_json, read_text, sha256_of_file, write_json
from minbert.settings import as_json, read_as
from multitask.base import logger
from multitask.base.keys import FORMAT_VERSION, RunKey, machine_name
from multitask.base.locks import exclusive, refuse_link

DONE = "DONE"
LOCKS = ".locks"
STATE = "state/state.pt"  # what a stopped training goes on from
STATE_SECONDS = "state/seconds.json"  # the wall time of all processes until this state was saved


@dataclass(frozen=True)
class Vouched:
    """What DONE says of a file of a complete run."""

    sha256: str
    size: int  # bytes
    modified: int  # nanoseconds


@dataclass(frozen=True)
class Completed:
    """What DONE holds."""

    seconds: float  # wall time that the run took, loading and evaluation included
    files: dict[str, Vouched]  # all files of the run by their paths within its folder


@dataclass(frozen=True)
class Weights:
    """The name of a model."""

    name: str  # `all-minilm-l6-v2`, a folder, a run, or a hub id
    revision: str | None = None  # branch, tag or commit of a hub id

    @classmethod
    def of(cls, name: "str | Path | Weights") -> "Weights":
        """The same; a plain name has no revision."""
        return name if isinstance(name, Weights) else cls(str(name))

    @classmethod
    def parse(cls, text: str) -> "Weights":
        """The model that `str` gave this text of."""
        name, _, revision = (text, "", "") if Path(text).exists() else text.partition("@")
        return cls(name, revision or None)

    def __str__(self) -> str:
        return self.name if self.revision is None else f"{self.name}@{self.revision}"


@dataclass(frozen=True)
class MetricsLine:
    """A line of metrics.jsonl: an evaluation, and the training since the one before."""

    step: int
    epoch: int
    training: dict[str, float]  # mean losses by name
    dev: dict[str, Any]  # what was measured, by task
    scores: dict[str, float | None]  # null if undefined; older files have NaN
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Run:
    """The folder of one run."""

    folder: Path

    @classmethod
    @contextmanager
    def building(
        cls, runs: Path, key: RunKey, name: str, labels: Mapping[str, str], threads: int | None = None
    ) -> Iterator["Run"]:
        """The artefact of a run, while no other process may build it; waits for one that does. A kill frees the lock.

        The caller checks whether it is done, and otherwise builds and finishes it. `name` and `labels` are for people
        and not part of the key. `threads` are those that a training on a processor begins with; one that goes on keeps
        its own.

        Raises:
            InputError: a name that cannot stand in a folder's name, or the run is complete but damaged.
        """
        if not re.fullmatch(r"[\w.+-]+", name):
            raise InputError(f"--name {name}: expected letters, digits and the signs . _ + -")
        digest = key.digest()
        waiting = f"{key.stage} {digest} is being computed by another process; waiting for it"
        with ExitStack() as lock:
            try:
                lock.enter_context(exclusive(lock_file(runs, f"{key.stage}-{digest}"), waiting))
            except OSError:
                # Another user's folder of runs, or a disk that is only read: what is complete can still be read.
                if (found := cls.find(runs, key)) is None or not found.done:
                    raise
                found.check()
                yield found
                return
            artefact = cls.find(runs, key) or cls(runs / f"{key.stage}-{name}-{digest}")
            for path in (artefact.folder, *artefact.folder.rglob("*")):
                refuse_link(path)
            artefact._prepare(key, labels, threads)
            try:
                yield artefact
            except InputError:
                if {path.name for path in artefact.folder.iterdir()} <= {"config.json", "inputs.json"}:
                    shutil.rmtree(artefact.folder)  # refused before anything was computed
                raise

    def _prepare(self, key: RunKey, labels: Mapping[str, str], threads: int | None) -> None:
        if self.done:
            self.check()
            self.remove_state()
        else:
            for leftover in list(self.folder.rglob(".*.tmp")):  # of a kill
                _remove_folder(leftover)
            versions = {"format": FORMAT_VERSION, "stage": key.stage, "version": key.version, "key": key.digest()}
            write_json(self.folder / "config.json", as_json(key.config))
            named: dict[str, Any] = {"labels": dict(labels), "machine": machine_name(str(key.inputs.get("device")))}
            if threads is not None:  # others would round differently than the steps before the stop
                named["threads"] = (self.threads if (self.folder / STATE).is_file() else None) or threads
            write_json(self.folder / "inputs.json", {**versions, **key.inputs, **named})

    @classmethod
    def find(cls, runs: Path, key: RunKey) -> "Run | None":
        """The run with this key, a complete one if there are copies of it; None if there is none."""
        found = map(cls, sorted(runs.glob(f"{key.stage}-*-{key.digest()}")))
        return min(found, key=lambda run: not run.done, default=None)

    @property
    def digest(self) -> str:
        """The key of the run, 16 hex digits; the same when the folder is copied or renamed."""
        path = self.folder / "inputs.json"
        if not isinstance(key := read_json(path, dict).get("key"), str):
            raise InputError(f"{path}: no key; expected a run of this version, or the folder of one of its checkpoints")
        return key

    @property
    def threads(self) -> int | None:
        """How many threads trained it on a processor; None if their number changes nothing."""
        found = str(read_json(self.folder / "inputs.json", dict).get("threads"))
        return int(found) if re.fullmatch(r"[1-9]\d{0,3}", found) else None

    @property
    def labels(self) -> dict[str, str]:
        """Readable names of what it was made from. Raises InputError if they are missing or damaged."""
        path = self.folder / "inputs.json"
        labels = json_text(read_json(path, dict).get("labels"))
        found: dict[str, str] = read_as(dict[str, str], labels, f"{path}: labels")
        return found

    @property
    def stage(self) -> str:
        """The name of its stage."""
        return self.folder.name.partition("-")[0]

    @property
    def seconds(self) -> float:
        """Wall time that the complete run took, loading and evaluation included; a resumed one's time is summed up."""
        return self._completed().seconds

    @property
    def seconds_before(self) -> float:
        """Wall time of earlier processes until they saved the state that the run goes on from; 0: not known."""
        with suppress(InputError, OSError, KeyError, TypeError, ValueError):  # a time must not stop a training
            if before_checksum(self.folder / STATE) is not None:
                return max(0.0, float(read_json(self.folder / STATE_SECONDS, dict)["seconds"]))  # 0 in place of NaN
        return 0.0

    def keep_seconds(self, seconds: float) -> None:
        """Keep the wall time of all processes with the saved state."""
        write_json(self.folder / STATE_SECONDS, {"seconds": round(seconds, 3)})

    @property
    def machine(self) -> str:
        """The device or processor that computed it, for people."""
        return str(read_json(self.folder / "inputs.json", dict).get("machine", ""))

    @property
    def done(self) -> bool:
        """Whether the run is complete."""
        return (self.folder / DONE).is_file()

    def finish(self, seconds: float = 0.0) -> None:
        """Mark the run complete; only then is the state that it could be resumed from removed.

        `seconds` is the wall time of all processes; states of older versions, which lack it, have that of the steps.

        Raises:
            FileNotFoundError: a file was removed meanwhile. The same run begins anew, from no saved state.
        """
        if missing := self._missing():
            self.remove_state()
            lost = "removed while the run was computed; run the same command again"
            raise FileNotFoundError(errno.ENOENT, lost, str(missing))
        vouched = {}
        trained = self.history()[-1]["seconds"] if (self.folder / "metrics.jsonl").is_file() else 0.0
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if path.is_file() and name != DONE and not name.startswith("state/"):
                stat = path.stat()
                vouched[name] = Vouched(sha256_of_file(path), stat.st_size, stat.st_mtime_ns)
        write_json(self.folder / DONE, asdict(Completed(round(max(seconds, trained), 3), vouched)))
        self.remove_state()

    def remove_state(self) -> None:
        """Remove what the run could be resumed from. A kill right after DONE leaves it to a complete run."""
        _remove_folder(self.folder / "state")

    def _missing(self) -> Path | None:
        """A file that every run of its kind has, or a model that is kept, if it is not there."""
        needed = [self.folder / name for name in ("config.json", "inputs.json")]
        if (self.folder / "metrics.jsonl").is_file():
            needed.append(self.folder / "best.json")
        needed += [folder / "model.safetensors" for folder in self.kept_models().values()]
        return next((path for path in needed if not path.is_file()), None)

    def require_complete(self) -> None:
        """Raise InputError unless the run is complete and its files are as they were when it ended."""
        if not self.done:
            raise InputError(f"{self.folder}: not a complete run; run the command that made it again to finish it")
        self.check()

    def check(self) -> None:
        """Raise InputError if a file of the complete run is missing or has other bytes than when the run ended.

        Files whose size and time of change are as they were are not read.
        """
        for folder, *names in os.walk(self.folder):  # passes over state/, which another process may be removing
            for name in chain(*names):
                refuse_link(Path(folder, name))
        for name, vouched in self._completed().files.items():
            path = self.folder / name
            stat = path.stat() if path.is_file() else None
            same = stat is not None and (stat.st_size, stat.st_mtime_ns) == (vouched.size, vouched.modified)
            if stat is None or (not same and sha256_of_file(path) != vouched.sha256):
                raise InputError(
                    f"{path}: {'missing' if stat is None else 'changed'} since the run was complete; "
                    f"delete {self.folder} and run the command that made it again"
                )

    def _completed(self) -> Completed:
        try:
            found: Completed = read_as(Completed, read_text(self.folder / DONE), self.folder / DONE)
            for name in found.files:
                if Path(name).is_absolute() or ".." in Path(name).parts:
                    raise InputError(f"{self.folder / DONE}: names {name!r:.60}, which is not in the run")
        except InputError as error:
            raise InputError(f"{error}; delete {self.folder} and run the command that made it again") from None
        return found

    def history(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, at least one, with scores of the same names; an undefined score is NaN.

        Raises InputError if damaged.
        """
        path = self.folder / "metrics.jsonl"
        found: list[dict[str, Any]] = []
        for number, line in enumerate(read_text(path).splitlines(), start=1):
            values = vars(read_as(MetricsLine, line, Path(f"{path}:{number}")))
            found.append(values | {name: nan_for_null(values[name]) for name in ("dev", "scores")})
            if found[-1]["scores"].keys() != found[0]["scores"].keys():
                expected = ", ".join(found[0]["scores"])
                raise InputError(f"{path}:{number}: other scores than in the first line; expected {expected}")
        if not found:
            raise InputError(f"{path}: no lines; expected one for each evaluation")
        return found

    def evaluation(self) -> dict[str, Any]:
        """What evaluation.json says; an undefined score is NaN. Raises InputError if it is missing or damaged."""
        found = read_json(self.folder / "evaluation.json", dict)
        scored = [name for name in ("overall", "scores", "metrics", "members") if name in found]
        return found | {name: nan_for_null(found[name]) for name in scored}

    def model_folder(self, best_on: str | None = None) -> Path:
        """The kept model that is best on a dev score, e.g. `overall` or a task; the leading score when left out.

        Raises:
            InputError: the run is not complete, is damaged, or keeps no such model.
        """
        self.require_complete()
        kept = self.kept_models()
        score = best_on or next(iter(kept), None)
        if score is None or score not in kept:
            remedy = f"it has {', '.join(kept)}" if kept else "pass a run of finetune or pretrain"
            raise InputError(f"{self.folder}: keeps no model{f' that is best on {score}' if score else ''}; {remedy}")
        return kept[score]

    def kept_models(self) -> dict[str, Path]:
        """The model that is best on each score, the leading score first; empty where the run keeps none."""
        path = self.folder / "best.json"
        best = read_as(dict[str, str], read_text(path), path) if path.is_file() else {}
        if strange := [name for name in best.values() if not re.fullmatch(r"[\w-]+", name)]:
            raise InputError(f"{path}: {strange[0]!r:.60} is no name of a checkpoint, such as step-0000016")
        return {score: self.folder / "checkpoints" / checkpoint for score, checkpoint in best.items()}


def _remove_folder(path: Path) -> None:
    if path.is_dir():  # `rmtree` would wait forever to open a pipe
        shutil.rmtree(path, ignore_errors=True)


def refuse_file_of_run(output: Path, flag: str = "--output") -> None:
    """Raise InputError if an output would replace what makes a run, or a file that the run's DONE vouches for."""
    path = output.resolve()
    if run := next(filter(is_run, path.parents), None):
        artefact, name = Run(run), path.relative_to(run).as_posix()
        own = name in artefact._completed().files if artefact.done else path.is_file()
        if own or name in ("config.json", "inputs.json", DONE):
            raise InputError(f"{flag} {output}: a file of the run {run}; expected another name")


@contextmanager
def replaced_files_named(*places: Path) -> Iterator[None]:
    """Log which of these files, or files in these folders, have other bytes when the block ends."""
    files = [path for place in places for path in ([place] if place.is_file() else place.glob("*")) if path.is_file()]
    before = {path: sha256_of_file(path) for path in files}
    yield
    for path, hash_before in before.items():
        if sha256_of_file(path) != hash_before:
            logger.warning("%s: replaced; it had other contents", path)


def lock_file(runs: Path, name: str) -> Path:
    """A lock of a folder of runs."""
    refuse_link(runs / LOCKS)
    return runs / LOCKS / name


def check_names(names: Iterable[str | None], path: Path) -> None:
    """Raise InputError if a record in a file names what cannot be a run, such as a path to another place."""
    if strange := [name for name in names if name is not None and not re.fullmatch(r"\w[\w.+-]*", name)]:
        raise InputError(f"{path}: {strange[0]!r:.60} is no name of a run, such as finetune-run-0123456789abcdef")


def is_run(name: str | Path) -> bool:
    """Whether a user names a run's folder, complete or not."""
    return (Path(name) / "inputs.json").is_file()


def run_of(model: str | Path) -> Path:
    """The run that a checkpoint, or a link to it, belongs to; the folder itself if it belongs to none."""
    folder = Path(model).resolve()
    return folder.parent.parent if folder.parent.name == "checkpoints" else Path(model)


def last_run(runs: Path) -> Path:
    """The folder of the complete run with a model that ended last. Raises InputError if there is none."""
    for done in sorted(runs.glob(f"*/{DONE}"), key=lambda path: path.stat().st_mtime_ns, reverse=True):
        if Run(done.parent).kept_models():
            return done.parent
    raise InputError(f"{runs}: no complete run with a model; expected the folder of runs that a training wrote")


def locate_model(name: str | Path, revision: str | None = None, best_on: str | None = None) -> Path:
    """A model folder from what a user names: a run's folder, or a checkpoint as `resolve` takes it.

    `revision` is that of a hub id. Of a run's models, it is the one that is best on the score `best_on`. Raises
    InputError for these of what has none, too.
    """
    if is_run(name):
        if revision is not None:
            raise InputError(f"{name} is a run and has no revision {revision!r}; leave the revision out")
        return Run(Path(name)).model_folder(best_on)
    if best_on is not None:
        raise InputError(f"best_on is {best_on}, but {name} is no run; only a run keeps several models")
    return resolve(str(name), revision)


def without_folders(text: str) -> str:
    """Text whose absolute paths are cut to their last part: where files lay is nobody else's business."""
    return re.sub(r"(?<!\S)/\S*/", "", text)
