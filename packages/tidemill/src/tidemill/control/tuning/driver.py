"""Drive each tuning job from its creation to its end, with one task per job.

A trial is committed with its name and its values before its training is created, and the name follows from the job and
the trial's number. So the next service after kill -9 creates what is missing, and nothing twice. The search keeps no
state: each suggestion is derived from the committed trials.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import structlog

from tidemill.control.jobs import TUNING, Jobs
from tidemill.control.tags import Tags
from tidemill.control.training.jobs import Training
from tidemill.control.training.metrics import TrainingMetrics
from tidemill.control.tuning.completion import decision_on, trials_allowed
from tidemill.control.tuning.definition import Definition, definitions_of, trial_name
from tidemill.control.tuning.early_stopping import hyperband_stops, median_stops
from tidemill.control.tuning.search import (
    ModelProcess,
    Point,
    grid_point,
    grid_points,
    model_task,
    random_point,
    texts_at,
)
from tidemill.control.work_queue import JobDriver
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.training import JobStatus, TrainingJob
from tidemill.core.tuning import TuningJob, TuningTrial
from tidemill.errors import AwsError, ResourceInUse, ServiceUnavailable, ValidationException
from tidemill.store.records.base import RecordStore

_log = structlog.get_logger("tidemill.tuning")
_LOOK_S = 60.0  # ends of trainings and stops wake a job; polling finds other changes, e.g. MaxRuntimeInSeconds
_METRICS_S = 3.0
_FAILURE_LIMIT = 1024


class TuningDriver(JobDriver[TuningJob]):
    """Runs the accepted tuning jobs.

    Args:
        training: Creates and stops their trainings.
        metrics: Reads the objectives of running trainings.
        tags: The tags of the jobs, which their trainings get.
    """

    def __init__(
        self, records: RecordStore, training: Training, metrics: TrainingMetrics, *, tags: Tags, clock: Clock
    ) -> None:
        super().__init__(Jobs(records, TUNING))
        self._training = training
        self._metrics = metrics
        self._tags = tags
        self._clock = clock
        self._model = ModelProcess()
        self._modeled: set[str] = set()

    def training_ended(self, job: TrainingJob) -> None:
        """Look at the tuning job of a training that has ended, if it is a trial."""
        if job.tuning_job_arn:
            self.wake(job.tuning_job_arn.rpartition("/")[2])

    async def close(self) -> None:
        """Stop driving jobs. Their trainings run on, and the next service continues to drive the jobs."""
        await super().close()
        await self._model.close()

    def _runs(self, job: TuningJob) -> bool:
        return bool(job.trials)

    async def _drive(self, name: str) -> None:
        try:
            await super()._drive(name)
        finally:
            self._modeled.discard(name)
            if not self._modeled:
                await self._model.close()

    async def _fail(self, job: TuningJob, reason: str) -> None:
        reason = reason[:_FAILURE_LIMIT]
        await self._update(job.name, lambda now: now.decide(JobStatus.FAILED, failure_reason=reason))
        await self._finish(self._job(job.name), definitions_of(job))

    async def _run(self, job: TuningJob) -> None:
        definitions = definitions_of(job)
        if job.config["Strategy"] == "Bayesian" and job.decided is None:
            self._modeled.add(job.name)
            await self._model.start()
        curves: dict[str, Sequence[float]] = {}
        while True:
            job = await self._noted(self._job(job.name), definitions)
            job = await self._decided(job, definitions)
            if job.decided is not None:
                await self._finish(job, definitions)
                return
            job = await self._fill(job, definitions)
            await self._stop_hopeless(job, definitions, curves)
            await self._queue.wait(job.name, timeout_s=self._pause_s(job))

    def _pause_s(self, job: TuningJob) -> float:
        """Return the longest time after which to look at a job again."""
        limit_s = job.config["ResourceLimits"].get("MaxRuntimeInSeconds")
        pause_s = _METRICS_S if _watches_metrics(job) else _LOOK_S
        if limit_s is None:
            return pause_s
        return min(pause_s, max(0.0, limit_s - (self._clock.now_ms() - job.created_ms) / 1000))

    async def _noted(self, job: TuningJob, definitions: Sequence[Definition]) -> TuningJob:
        """Store the results of the trainings that have ended."""
        ended: list[TuningTrial] = []
        for trial in job.running:
            training = self._training.find(trial.name)
            if training is not None and training.status.terminal:
                ended.append(definitions[trial.definition].observed(trial, training))
        if not ended:
            return job
        faults.point("control.tuning.noted.before")
        job = await self._update(job.name, lambda now: now.with_trials(ended))
        faults.point("control.tuning.noted.after")
        return job

    async def _decided(self, job: TuningJob, definitions: tuple[Definition, ...]) -> TuningJob:
        """Store the decision to create no further training, if it is due."""
        now_ms = self._clock.now_ms()
        decision = None if job.decided else decision_on(job, definitions, now_ms=now_ms)
        if decision is None:
            return job

        def decide(now: TuningJob) -> TuningJob:
            decided = now.decide(decision.status, failure_reason=decision.failure_reason)
            return replace(decided, converged_ms=now_ms) if decision.converged else decided

        return await self._update(job.name, decide)

    async def _finish(self, job: TuningJob, definitions: Sequence[Definition]) -> None:
        """Stop the running trainings, wait for their ends, and end the job."""
        while (job := await self._stop_all(await self._noted(job, definitions))).running:
            await self._queue.wait(job.name, timeout_s=_LOOK_S)
            job = self._job(job.name)
        at_ms = self._clock.now_ms()
        faults.point("control.tuning.end.before")
        job = await self._update(job.name, lambda now: now.end(at_ms=at_ms))
        faults.point("control.tuning.end.after")
        _log.info("tuning.ended", name=job.name, status=str(job.status), reason=job.failure_reason)
        self._announce(job)

    async def _stop_all(self, job: TuningJob) -> TuningJob:
        """Stop the running trainings. A trial whose training was not created yet ends without one."""
        missing: list[TuningTrial] = []
        for trial in job.running:
            training = self._training.find(trial.name)
            if training is None:
                at_ms = self._clock.now_ms()
                missing.append(replace(trial, status=JobStatus.STOPPED, ended_ms=at_ms))
            elif training.status is JobStatus.IN_PROGRESS:
                await self._stop(trial.name)
        return await self._update(job.name, lambda now: now.with_trials(missing)) if missing else job

    async def _stop(self, name: str) -> None:
        with contextlib.suppress(ValidationException):  # it has ended meanwhile
            await self._training.stop(name)

    async def _fill(self, job: TuningJob, definitions: tuple[Definition, ...]) -> TuningJob:
        """Create the trainings that are missing, and further ones up to the limits of the job."""
        for trial in job.running:
            if self._training.find(trial.name) is None:
                await self._create(job, trial, definitions[trial.definition])
        most, at_once = trials_allowed(job, definitions), job.config["ResourceLimits"]["MaxParallelTrainingJobs"]
        while job.decided is None and len(job.running) < at_once and len(job.trials) < most:
            trial = await self._next_trial(job, definitions)

            def add(now: TuningJob, trial: TuningTrial = trial) -> TuningJob:
                return now if now.decided else replace(now, trials=(*now.trials, trial))

            faults.point("control.tuning.trial.before")
            job = await self._update(job.name, add)
            faults.point("control.tuning.trial.after")
            if job.decided is None:
                await self._create(job, trial, definitions[trial.definition])
        return job

    async def _create(self, job: TuningJob, trial: TuningTrial, definition: Definition) -> None:
        request = definition.training_request(trial.name, trial.hyperparameters)
        tags = [{"Key": key, "Value": value} for key, value in self._tags.of(job.arn).items()]
        try:
            await self._training.create(request, tags=tags, tuning_job_arn=job.arn)
        except ServiceUnavailable:
            raise
        except AwsError as error:
            present = self._training.find(trial.name)
            if isinstance(error, ResourceInUse) and present is not None and present.tuning_job_arn == job.arn:
                return
            reason = f"ClientError: {error.message}"[:_FAILURE_LIMIT]
            failed = replace(trial, status=JobStatus.FAILED, ended_ms=self._clock.now_ms(), failure_reason=reason)
            await self._update(job.name, lambda now: now.with_trials([failed]))
            self.wake(job.name)

    async def _next_trial(self, job: TuningJob, definitions: Sequence[Definition]) -> TuningTrial:
        number, of_grid = len(job.trials), job.config["Strategy"] == "Grid"
        definition, place = _of_grid(definitions, number) if of_grid else (definitions[number % len(definitions)], 0)
        point = grid_point(definition.ranges, place) if of_grid else await self._point(job, definition)
        return TuningTrial(
            name=trial_name(job, number),
            definition=definition.number,
            hyperparameters=texts_at(definition.ranges, point),
            created_ms=self._clock.now_ms(),
        )

    async def _point(self, job: TuningJob, definition: Definition) -> Point:
        ranges, number = definition.ranges, len(job.trials)
        seed = job.config.get("RandomSeed", int(job.job_id[:8], 16))
        tried = [trial for trial in job.trials if trial.definition == definition.number]
        if job.config["Strategy"] == "Bayesian":
            seed_here = Random(f"{seed} {number} model").getrandbits(32)  # noqa: S311 - a search, not a secret
            task = model_task(ranges, [*job.parents, *tried], maximizes=job.maximizes, seed=seed_here)
            if task is not None:
                return await self._model.suggest(task)
        random = Random(f"{seed} {number}")  # noqa: S311 - a search, not a secret
        return random_point(ranges, random, tried=[trial.hyperparameters for trial in tried])

    async def _stop_hopeless(
        self, job: TuningJob, definitions: Sequence[Definition], known: dict[str, Sequence[float]]
    ) -> None:
        """Stop the trainings that are hopeless by the values in their logs.

        ``known`` keeps the values of ended trainings, whose logs do not change.
        """
        if not _watches_metrics(job) or not job.running:
            return
        curves: dict[str, Sequence[float]] = {}
        for trial in job.trials:
            if trial.name not in known:
                curves[trial.name] = await self._values(trial.name, definitions[trial.definition].metric)
                if trial.status.terminal:
                    known[trial.name] = curves[trial.name]
        curves |= known
        stops = hyperband_stops if _is_hyperband(job) else median_stops
        for name in stops(job, curves):
            training = self._training.find(name)
            if training is not None and training.status is JobStatus.IN_PROGRESS:
                _log.info("tuning.stopped_early", name=job.name, training=name)
                await self._stop(name)

    async def _values(self, training: str, metric: str) -> Sequence[float]:
        """Return the values of a metric in the log of the first instance that logs it."""
        series = await self._metrics.points(training, metric)
        return next((tuple(points.values) for points in series if points.values), ())


def _watches_metrics(job: TuningJob) -> bool:
    return _is_hyperband(job) or job.config.get("TrainingJobEarlyStoppingType") == "Auto"


def _is_hyperband(job: TuningJob) -> bool:
    return job.config["Strategy"] == "Hyperband"


def _of_grid(definitions: Sequence[Definition], number: int) -> tuple[Definition, int]:
    """Return the definition of a trial of a grid, and its number in this definition's grid."""
    for definition in definitions:
        count = grid_points(definition.ranges)
        if number < count:
            return definition, number
        number -= count
    raise ValueError(f"the grid has {number} trials less")
