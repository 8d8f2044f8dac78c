"""The specs of instances on this machine: what the shim reads, with the GPUs, the network and the files of each."""

import contextlib
from dataclasses import replace
from pathlib import Path

from tidemill.core.files import read_json, sync_directory, write_json
from tidemill.core.segments import create_stream
from tidemill.environments.builder import Environments
from tidemill.errors import LaunchError
from tidemill.executors.gpus import GpuPool
from tidemill.executors.local_objects import LocalObjects
from tidemill.executors.networks import JobNetworks
from tidemill.executors.warm import WarmProcesses
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.records import Site, SpecRecord
from tidemill.instance.spec import InstanceSpec
from tidemill.sandbox import Detection


class LocalSpecs:
    """Writes specs for this machine, and provides what they name.

    Args:
        site: Facts about the machine that are the same for all instances.
        detection: The sandbox of jobs.
        logs: Root directory of the log segments.
        objects: Resolves references to objects.
    """

    def __init__(
        self,
        site: Site,
        detection: Detection,
        *,
        logs: Path,
        networks: JobNetworks,
        gpus: GpuPool,
        objects: LocalObjects,
    ) -> None:
        self._site = site
        self._detection = detection
        self._logs = logs
        self._networks = networks
        self._gpus = gpus
        self._objects = objects
        self._warm = WarmProcesses(site.state_dir, Environments(site.environments_dir))

    def write(self, directory: InstanceDirectory, spec: InstanceSpec) -> None:
        """Write the spec of an instance, its listings, and the directories that it needs.

        Raises:
            LaunchError: The machine cannot honor the spec.
            OSError: The directory cannot be written.
        """
        full = self._wants_network(spec)
        if spec.runs_a_script and len(spec.hosts) > 1 and not full and not spec.addresses:
            note = f"tidemill: {self._detection.no_network}: the instances share this machine's network and its ports"
            spec = replace(spec, notices=(*spec.notices, note))
        for channel in spec.channels:
            if "/" in channel.name or "\0" in channel.name:
                raise LaunchError(f"channel name {channel.name!r} cannot name a file")
        directory.channels.mkdir(parents=True, mode=0o700, exist_ok=True)
        if len(spec.hosts) > 1 and spec.runs_a_script and not spec.addresses:
            directory.shared.mkdir(mode=0o700, exist_ok=True)
        for made in (directory.path.parent.parent, directory.path.parent, directory.path):
            sync_directory(made)
        listed = self._objects.write_listings(directory, spec)
        record = SpecRecord(
            spec=replace(spec, channels=(), restored=(), code=None, model=None, remotes=listed.remotes),
            channels=tuple(
                each.name for each in spec.channels if each.input_mode != "Pipe" and each.name not in listed.fast_files
            ),
            fast_files=listed.fast_files,
            pipes=tuple(replace(channel, objects=()) for channel in spec.channels if channel.input_mode == "Pipe"),
            code=listed.code,
            model=listed.model,
            log_directory=create_stream(self._logs, spec.log.group, spec.log.stream),
            shared=listed.shared,
            devices=self._gpus.take(spec.ref, spec.gpus) if self._gpus.devices else None,
            site=replace(
                self._site,
                warm_socket=self._warm.socket(f"tf-{spec.framework_version}", python=spec.python)
                if spec.warm and not full
                else None,
                network=self._networks.ensure(spec) if full else None,
            ),
        )
        write_json(directory.spec_file, record.to_json())

    def read(self, directory: InstanceDirectory) -> SpecRecord:
        """Return the spec of an instance.

        Raises:
            ValueError: The file cannot be read as a spec.
        """
        try:
            return SpecRecord.from_json(read_json(directory.spec_file) or {})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error

    def ensure_network(self, directory: InstanceDirectory) -> None:
        """Make the network of an instance that has not started if it is missing, e.g. after a reboot of the machine.

        Raises:
            LaunchError: The network cannot be made.
        """
        with contextlib.suppress(ValueError, KeyError, TypeError):  # the shim reports an unreadable file
            record = self.read(directory)
            if record.site.network:
                self._networks.ensure(record.spec)

    def warm_up(self, framework_version: str) -> None:
        """Start the process from which warm jobs of that TensorFlow version are forked, if its environment is built.

        Args:
            framework_version: For example ``2.21``.
        """
        self._warm.socket(f"tf-{framework_version}")

    def close(self) -> None:
        """End the warm processes."""
        self._warm.close()

    def _wants_network(self, spec: InstanceSpec) -> bool:
        """Return whether an instance runs in isolation mode full.

        Raises:
            LaunchError: The job needs a separate network, and the machine cannot provide one.
        """
        found = self._detection
        if not spec.runs_a_script:
            return False
        if spec.closed and found.no_network:
            raise LaunchError(f"EnableNetworkIsolation cannot be honored: {found.no_network}")
        if spec.addresses:
            if spec.closed:
                raise LaunchError("EnableNetworkIsolation cannot be honored: instances share their machines' network")
            return False
        wanted = found.always or spec.closed or spec.serves_network or len(spec.hosts) > 1
        return wanted and not found.no_network
