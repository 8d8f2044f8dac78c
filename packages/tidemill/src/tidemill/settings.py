"""One settings object: defaults, then the TOML file, then the environment (``TIDEMILL_*``), then flags.

The file is ``$TIDEMILL_CONFIG``, else ``~/.config/tidemill/config.toml``. Nothing else in the project reads
``TIDEMILL_*`` variables, except the fault points.
"""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PlainValidator, SecretStr
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from tidemill.core.images import DEFAULT_TENSORFLOW
from tidemill.core.limits import LimitPolicy
from tidemill.core.machine_share import MachineShare
from tidemill.core.names import DEFAULT_REGION, S3Uri
from tidemill.core.policy import Policy
from tidemill.core.policy_document import read_policy
from tidemill.core.remotes import RemoteS3
from tidemill.core.roles import check_role_names

__all__ = ["Settings"]

_Policies = Annotated[dict[str, Annotated[Policy, PlainValidator(read_policy)]], AfterValidator(check_role_names)]


def _xdg(variable: str, fallback: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / fallback) / "tidemill"


def _check_object_store(value: str | None) -> str | None:
    if value is not None and S3Uri.parse(value).key.startswith("/"):
        raise ValueError(f"{value!r} has an empty first segment; expected s3://bucket/prefix")
    return None if value is None else value.rstrip("/")


class Settings(BaseSettings):
    """What can be set. Sizes are bytes, times are seconds."""

    model_config = SettingsConfigDict(env_prefix="TIDEMILL_", extra="forbid", frozen=True)

    state_dir: Path = Field(default_factory=lambda: _xdg("XDG_DATA_HOME", ".local/share"))
    """Directory of the service's database, objects, logs and jobs. One service at a time."""
    node_dir: Path = Field(default_factory=lambda: _xdg("XDG_DATA_HOME", ".local/share").with_name("tidemill-node"))
    """Directory on a machine of a cluster for the files of its instances while they run."""
    environments_dir: Path = Field(default_factory=lambda: _xdg("XDG_CACHE_HOME", ".cache") / "environments")
    """Where environments for jobs and endpoints are built. May be shared by several services of one user."""
    database_url: SecretStr | None = None
    """PostgreSQL for the records, as ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``. Unset: a file in the state
    directory. One service at a time leads, and always with the same state directory."""
    standby: bool = False
    """While another service with the same ``database_url`` leads, pass connections on to it, and follow it when it ends
    or dies. Unset: a second service does not start."""
    endpoint_url: str | None = None
    """Which service clients talk to. Unset: this user's local service, started when need be."""

    host: str = "127.0.0.1"
    """Address that the service listens on. One that other machines reach needs ``tls_certificate`` and ``tls_key``; the
    clients and jobs of this machine then use another port, on 127.0.0.1."""
    port: int = Field(default=8780, ge=0, le=65535)
    """Port of the service; 0 takes a free one. If the default one is taken, the service takes the next free one; a
    port that was chosen and is taken is an error."""
    tls_certificate: Path | None = None
    """PEM file with the certificate and those between it and its root: the service answers HTTPS on ``host``."""
    tls_key: Path | None = None
    """PEM file with the private key of the certificate, without a passphrase."""
    allow_plain_http: bool = False
    """Listen without TLS on an address that other machines reach. Who can read the network can then read data, and
    repeat a request for 15 minutes."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names accepted in requests besides loopback names, and besides ``host`` if that is no wildcard."""
    region: str = DEFAULT_REGION
    """A real AWS region: AWS's SDKs look it up."""

    isolation: Literal["auto", "full", "mount", "plain"] = "auto"
    """How jobs are separated from the machine. ``full`` gives every training job a separate network, in which it
    reaches its instances and the service, not the internet; ``mount`` gives none; ``auto``, where they work, gives one
    to jobs of several instances and to jobs with EnableNetworkIsolation, and leaves the machine's network to the
    others, whose scripts may download data as on SageMaker."""
    executor: Literal["local", "ray"] = "local"
    """Where training jobs run: on this machine, or on those of a Ray cluster. Endpoints and batch transform jobs run
    on this machine."""
    ray_address: str = "auto"
    """The Ray cluster, as ``HOST:PORT``; ``auto`` is the one that this machine belongs to."""
    ray_instance_types: dict[str, MachineShare] = Field(default_factory=dict)
    """By instance type or pattern (``*``, ``?``): what an instance takes of its machine, and which labels the machine
    must have. Instances of other types take one CPU."""
    lease_s: float = Field(default=60.0, ge=6.0)
    """Time without contact to the service after which an instance of a cluster ends itself, the time to save included.
    A lost instance is started again when its lease has ended."""
    max_instances: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1)
    """Training instances that run at the same time; further jobs wait in order."""
    gpus: tuple[str, ...] | None = None
    """GPUs of this machine that training jobs may have, as CUDA_VISIBLE_DEVICES names them: numbers or ``GPU-...``.
    Unset: those that nvidia-smi lists. Empty: none."""
    share_gpus: bool = False
    """Let several jobs have the same GPU at the same time. Unset: a job waits for GPUs that no other job has."""
    limit_to_instance_type: bool = False
    """Limit a training instance to the memory and processors of its instance type, if that is one of SageMaker's, and
    to VolumeSizeInGB of files."""
    instance_memory_mib: int | None = Field(default=None, ge=1)
    """Memory of a training instance. If its processes use more, they are killed, and the job fails."""
    instance_cpus: int | None = Field(default=None, ge=1)
    """Processors of a training instance."""
    instance_processes: int | None = Field(default=None, ge=1)
    """Processes of a training instance, with about five of tidemill. If it has more, they are killed, and the job
    fails."""
    instance_disk_mib: int | None = Field(default=None, ge=1)
    """Files that a training instance may write. If they take more, its processes are killed, and the job fails."""
    stop_grace_s: float = Field(default=120.0, gt=0)
    """Time between SIGTERM and SIGKILL when a job is stopped. Shorten it in tests only."""
    warm: bool = False
    """Fork scripts from a process that has TensorFlow imported already."""
    default_framework: str = DEFAULT_TENSORFLOW
    """TensorFlow version of `tidemill train` without ``--framework-version``, and of warm processes."""

    invoke_max_bytes: int = 6 * 1024 * 1024
    """Largest InvokeEndpoint request body."""
    invoke_timeout_s: float = 60.0
    """Longest time that a model may take to answer InvokeEndpoint."""
    serverless_idle_s: float = Field(default=300.0, gt=0)
    """A serverless endpoint's server that had no request for so long is ended; the next request starts another."""
    object_max_bytes: int = 5 * 1024**3
    """Largest body of one S3 PUT."""
    object_store: Annotated[str | None, AfterValidator(_check_object_store)] = None
    """Where the content of objects is stored, as ``s3://bucket/prefix`` of another S3, which an entry of ``remote_s3``
    names. Unset: in the state directory. Earlier objects stay where they are, and readable."""
    object_copies_max_bytes: int = Field(default=20 * 1024**3, ge=0)
    """Size of the copies of objects in another S3 that are kept on this machine for the next jobs."""
    remote_s3: dict[str, RemoteS3] = Field(default_factory=dict)
    """By bucket name or pattern (``*``, ``?``): the S3 of training data in buckets that this service does not hold.
    Nothing but what is named here is ever asked."""
    roles: _Policies = Field(default_factory=dict)
    """By role name: what the keys of a job with that RoleArn may do, as an IAM policy document. A job whose role is
    not named here gets the built-in policy (`tidemill.core.roles`)."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe events that go to the service's log: debug, info, warning or error."""

    @property
    def limit_policy(self) -> LimitPolicy:
        """What limits training instances."""
        return LimitPolicy(
            memory_mib=self.instance_memory_mib,
            cpus=self.instance_cpus,
            processes=self.instance_processes,
            disk_mib=self.instance_disk_mib,
            by_type=self.limit_to_instance_type,
        )

    @property
    def port_is_chosen(self) -> bool:
        """Whether a flag, the environment or the settings file names the port."""
        return "port" in self.model_fields_set

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then environment, then the TOML file, then defaults."""
        file = os.environ.get("TIDEMILL_CONFIG") or Path.home() / ".config/tidemill/config.toml"
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=file)
