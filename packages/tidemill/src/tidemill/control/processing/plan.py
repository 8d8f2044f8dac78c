"""Create the specs of a processing job's instances: those of a training job, with the paths of a processing job."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemill.control.channels import ChannelListing
from tidemill.control.training.plan import TrainingPlanner
from tidemill.core.names import S3Uri
from tidemill.core.processing import ProcessingJob, s3_inputs, s3_outputs, where_below_ml
from tidemill.instance.spec import PROCESSING, ChannelSpec, InlineText, Input, InstanceSpec, SyncedDirectory


class ProcessingPlanner:
    """Plans the instances of processing jobs.

    Args:
        training: Plans code, data, environment and limits of the instances.
    """

    def __init__(self, training: TrainingPlanner) -> None:
        self._training = training

    def gpus_of(self, request: Mapping[str, Any]) -> int:
        """Return how many GPUs a job occupies, as `TrainingPlanner.gpus_of`.

        Args:
            request: The members of CreateTrainingJob that describe the job's instances.
        """
        return self._training.gpus_of(request)

    def plan(
        self, job: ProcessingJob, *, variables: Mapping[str, str]
    ) -> tuple[tuple[InstanceSpec, ...], dict[str, Any]]:
        """Return the specs of a processing job's instances, and the digests of its inputs for the job's record.

        May list many objects: call it outside the event loop.

        Args:
            variables: Environment variables with the address and the keys of the service.

        Raises:
            DataMissing: An input does not exist, or the request cannot run with this version or its GPUs.
        """
        specs, record = self._training.plan(job, variables=variables)
        return tuple(_as_processing(spec, job) for spec in specs), record


def _as_processing(spec: InstanceSpec, job: ProcessingJob) -> InstanceSpec:
    request = job.request
    paths = {name: where_below_ml(source["LocalPath"]) for name, _, source in s3_inputs(request)}
    synced = tuple(_synced(target) for target in s3_outputs(request))
    channels = tuple(_merged(spec.channels, paths))
    copied = {each.name for each in channels if any(_is_below(output.path, paths[each.name]) for output in synced)}
    own = {"TRAINING_JOB_NAME", "TRAINING_JOB_ARN"}
    return replace(
        spec,
        kind=PROCESSING,
        warm=False,  # only submitted scripts can be forked
        variables={name: value for name, value in spec.variables.items() if name not in own},
        config={
            "processingjobconfig": {"ProcessingJobArn": job.arn, **request},
            "resourceconfig": spec.config["resourceconfig"],
        },
        config_directory="config",
        channels=tuple(replace(each, digest="") if each.name in copied else each for each in channels),
        channel_paths={channel.name: paths[channel.name] for channel in channels},
        copied_channels=tuple(sorted(copied)),
        synced=synced,
    )


def _synced(target: Mapping[str, Any]) -> SyncedDirectory:
    return SyncedDirectory(
        path=where_below_ml(target["LocalPath"]),
        uri=str(S3Uri.parse(target["S3Uri"].rstrip("/"))),
        whole=True,
        at_end=target["S3UploadMode"] == "EndOfJob",
        required=True,
    )


def _merged(channels: Sequence[ChannelSpec], paths: Mapping[str, str]) -> Iterator[ChannelSpec]:
    """Yield the channels, with those below the directory of another one as a part of it.

    Each channel is shown to the job by a mount of its own, and mounts of one kind cannot be nested.
    """
    left = sorted(channels, key=lambda channel: paths[channel.name].count("/"))
    while left:
        outer, *others = left
        above = paths[outer.name]
        inner = [each for each in others if _is_below(paths[each.name], above)]
        left = [each for each in others if each not in inner]
        if not inner:
            yield outer
            continue
        listing = ChannelListing(_entries((outer, *inner), paths, above))
        yield replace(outer, objects=listing, digest="")


def _entries(channels: Sequence[ChannelSpec], paths: Mapping[str, str], above: str) -> Iterator[Input]:
    for channel in channels:
        below = paths[channel.name][len(above) + 1 :]
        for each in channel.objects:
            if isinstance(each, InlineText):
                raise TypeError("an input of a processing job holds objects only")
            yield replace(each, name=f"{below}/{each.name}") if below else each


def _is_below(path: str, above: str) -> bool:
    """Return whether a path is a directory or below it."""
    return path == above or path.startswith(f"{above}/")
