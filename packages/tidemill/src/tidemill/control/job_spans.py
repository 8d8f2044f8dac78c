"""The spans of a job: one for the job, and one for each of its phases, in the trace of the request that created it.

Their ids follow from the job, so that its script gets the job's span as parent before the job has ended, also after a
restart of the service.
"""

import hashlib
from collections.abc import Iterator, Mapping

from tidemill.core.spans import Span, TraceContext
from tidemill.core.training import SecondaryStatus, TrainingJob
from tidemill.core.transform import TransformJob

_MS = 1_000_000
_PHASES: Mapping[SecondaryStatus, str] = {
    SecondaryStatus.PENDING: "queue",
    SecondaryStatus.STARTING: "prepare",
    SecondaryStatus.DOWNLOADING_IMAGE: "prepare",
    SecondaryStatus.DOWNLOADING: "download",
    SecondaryStatus.TRAINING: "train",
    SecondaryStatus.UPLOADING: "upload",
    SecondaryStatus.STOPPING: "stop",
    SecondaryStatus.INTERRUPTED: "interrupted",
    SecondaryStatus.RESTARTING: "restart",
}


def trace_of(job: TrainingJob | TransformJob) -> TraceContext:
    """Return the span of a job: in the trace of the request that created it, else in a trace of its own.

    Args:
        job: The job.
    """
    given = TraceContext.parse(job.trace) if isinstance(job, TrainingJob) else None
    trace_id, sampled = (given.trace_id, given.sampled) if given is not None else (job.job_id, True)
    return TraceContext(trace_id, _span_id(job.job_id, "job"), sampled)


def job_spans(job: TrainingJob | TransformJob, *, kind: str) -> Iterator[Span]:
    """Yield the spans of a job that has ended: its phases, then itself.

    Args:
        kind: Kind of its record, e.g. ``training-job``.
    """
    context = trace_of(job)
    ended_ms = job.ended_ms if job.ended_ms is not None else job.created_ms
    if isinstance(job, TrainingJob):
        for number, transition in enumerate(job.transitions):
            phase, end_ms = _PHASES.get(transition.status), transition.ended_ms
            if phase is None or end_ms is None:
                continue
            yield Span(
                name=phase,
                context=TraceContext(context.trace_id, _span_id(job.job_id, f"{number}"), context.sampled),
                parent=context,
                begin_ns=transition.started_ms * _MS,
                end_ns=end_ms * _MS,
                attributes={"tidemill.secondary_status": str(transition.status)},
            )
    attributes: dict[str, str | int | bool] = {
        "tidemill.job.kind": kind,
        "tidemill.job.name": job.name,
        "tidemill.job.arn": job.arn,
        "tidemill.job.status": str(job.status),
    }
    if isinstance(job, TrainingJob):
        attributes |= {"tidemill.job.instances": len(job.hosts), "tidemill.job.attempts": job.attempt}
    yield Span(
        name=kind,
        context=context,
        parent=TraceContext.parse(job.trace) if isinstance(job, TrainingJob) else None,
        begin_ns=job.created_ms * _MS,
        end_ns=ended_ms * _MS,
        attributes=attributes,
        failure=job.failure_reason,
    )


def _span_id(job_id: str, part: str) -> str:
    return hashlib.sha256(f"{job_id}/{part}".encode()).hexdigest()[:16]
