"""Ray as the engine: jobs on all GPUs or cores of a cluster whose machines share the folder of artefacts.

Joins the cluster that `ray start` began (or that RAY_ADDRESS names), else starts one on this machine. Needs
`pip install -e ".[ray]"`. Start weights in folders, data and artefacts must have the same paths everywhere; the machine
that runs the command must compute on the same kind of device as the others, since that is part of a result's identity.
"""

import os
import signal
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from minbert.errors import InputError
from multitask.runs.artefact import Weights
from multitask.runtime.errors import Interrupted
from multitask.runtime.options import RunOptions
from multitask.runtime.signals import stop_signals
from multitask.stages.registry import stage_named
from studies.engine.jobs import Done, Failed, Job, run_job

POLL = 0.5  # seconds until a signal is noticed
RETRIES = 5  # of a job whose worker or machine is lost; it goes on from its last saved state


class Ray:
    """Jobs on a cluster.

    Args:
        options: device and precision, resolved here so that they are the same everywhere.
    """

    slots = 100_000  # the cluster keeps what it has no room for

    def __init__(self, options: RunOptions) -> None:
        try:
            import ray
        except ImportError:
            raise InputError('--engine ray: Ray is not installed; install it with: pip install -e ".[ray]"') from None
        from multitask.runtime.device import start

        self.ray: Any = ray
        self.runtime = start(options.device, options.precision)
        self.jobs: dict[Any, Job] = {}

    def __enter__(self) -> Self:
        self.signals = ExitStack()
        self.signals.callback(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))  # Ray sets its own
        joined = {"log_to_driver": False, "configure_logging": False}
        try:
            self.ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), **joined)
        except ConnectionError:
            self.ray.init(address="local", **joined)
        # Ray's functions end in a SystemError if a signal's handler raises within them.
        self.received = self.signals.enter_context(stop_signals())
        self.run = self.ray.remote(run_job)
        return self

    def __exit__(self, *exception: object) -> None:
        for reference in self.jobs:
            self.ray.cancel(reference)  # a training saves its state
        if self.jobs:
            self.ray.wait(list(self.jobs), num_returns=len(self.jobs), timeout=60)
        self.ray.shutdown()
        self.signals.close()

    def submit(self, job: Job) -> None:
        gpus = stage_named(job.node.stage).gpu_share if self.runtime.device.type == "cuda" else 0
        run = self.run.options(
            num_cpus=job.options.threads or 1,
            num_gpus=gpus,
            max_retries=RETRIES,
            retry_exceptions=[Interrupted],
            name=job.log.stem,
        )
        self.jobs[run.remote(self._anywhere(job))] = job

    def wait(self) -> tuple[Job, Done | Failed]:
        ready: list[Any] = []
        while not ready:
            ready, _ = self.ray.wait(list(self.jobs), num_returns=1, timeout=POLL)
            if self.received:
                raise Interrupted(self.received[0])
        [reference] = ready
        job = self.jobs.pop(reference)
        try:
            outcome: Done | Failed = self.ray.get(reference)
            # The paths of the job on the cluster are absolute.
            return job, replace(outcome, log=job.log) if isinstance(outcome, Failed) else outcome
        except self.ray.exceptions.RayError as error:
            return job, Failed(f"lost by the cluster: {str(error).splitlines()[0]}", job.log)

    def _anywhere(self, job: Job) -> Job:
        """The job with paths and settings that mean the same on every machine."""
        options = replace(
            job.options,
            runs=job.options.runs.resolve(),
            device="cuda" if self.runtime.device.type == "cuda" else "cpu",
            precision=self.runtime.precision,
        )
        models = tuple(map(_absolute, job.models))
        node = replace(job.node, data=job.node.data.resolve())
        return replace(job, node=node, models=models, options=options, log=job.log.resolve())


def _absolute(weights: Weights) -> Weights:
    return replace(weights, name=str(Path(weights.name).resolve())) if Path(weights.name).is_dir() else weights
