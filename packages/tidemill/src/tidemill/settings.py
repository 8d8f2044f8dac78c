"""One settings object: defaults, then the TOML file, then the environment (``TIDEMILL_*``), then flags.

The file is ``$TIDEMILL_CONFIG``, else ``~/.config/tidemill/config.toml``. Nothing else in the project reads
``TIDEMILL_*`` variables, except `tidemill.core.service_choice` and the fault points.
"""

import os
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PlainValidator, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from tidemill.core.frameworks import MappedImage
from tidemill.core.images import DEFAULT_TENSORFLOW
from tidemill.core.limits import LimitPolicy
from tidemill.core.machine_share import MachineShare
from tidemill.core.names import DEFAULT_REGION, S3Uri
from tidemill.core.policy import IamPolicy
from tidemill.core.policy_document import read_policy
from tidemill.core.remotes import RemoteS3
from tidemill.core.roles import check_role_names
from tidemill.core.service_choice import NamedEndpoint, named_in_environment, settings_file, user_directory
from tidemill.core.slurm_options import SlurmOptions
from tidemill.core.webhooks import Webhook, check_webhook_names

_Policies = Annotated[dict[str, Annotated[IamPolicy, PlainValidator(read_policy)]], AfterValidator(check_role_names)]


def _check_absolute(value: Path) -> Path:
    if not value.is_absolute():
        raise ValueError(f"{str(value)!r} is not an absolute path")
    return value


_Absolute = Annotated[Path, AfterValidator(_check_absolute)]


def _check_otlp_endpoint(value: str | None) -> str | None:
    if value is None:
        return None
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError(
            f"{value.rpartition('@')[2]!r} is not the address of a collector; expected http(s)://host[:port], without a"
            " user. The variable OTEL_EXPORTER_OTLP_HEADERS sends a password"
        )
    return value


def _check_object_store(value: str | None) -> str | None:
    if value is not None and S3Uri.parse(value).key.startswith("/"):
        raise ValueError(f"{value!r} has an empty first segment; expected s3://bucket/prefix")
    return None if value is None else value.rstrip("/")


class Settings(BaseSettings):
    """The settings. Sizes are in bytes, times in seconds."""

    model_config = SettingsConfigDict(env_prefix="TIDEMILL_", extra="forbid", frozen=True)

    state_dir: Path = Field(default_factory=lambda: user_directory("XDG_DATA_HOME", ".local/share"))
    """Directory of the service's database, objects, logs and jobs. One service at a time."""
    node_dir: Path = Field(
        default_factory=lambda: user_directory("XDG_DATA_HOME", ".local/share").with_name("tidemill-node")
    )
    """Directory on a machine of a cluster for the files of its instances while they run."""
    environments_dir: Path = Field(default_factory=lambda: user_directory("XDG_CACHE_HOME", ".cache") / "environments")
    """Directory of the environments for jobs and endpoints. Several services of one user may share it."""
    database_url: SecretStr | None = None
    """PostgreSQL database for the records, as ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``. Unset: a file in the
    state directory. One service at a time leads, always with the same state directory."""
    standby: bool = False
    """While another service with the same ``database_url`` leads, forward connections to it, and take over when it
    exits or dies. Unset: a second service does not start."""
    endpoint_url: str | None = None
    """URL of the service that the SDK and the commands use. ``TIDEMILL_ENDPOINT_URL``, ``AWS_ENDPOINT_URL_SAGEMAKER``
    and ``AWS_ENDPOINT_URL`` win over the file. Unset: this user's own service, which is started if necessary."""

    host: str = "127.0.0.1"
    """Address on which the service listens. An address that other machines can reach requires ``tls_certificate`` and
    ``tls_key``; clients and jobs of this machine then use another port, on 127.0.0.1."""
    port: int = Field(default=8780, ge=0, le=65535)
    """Port of the service; 0 selects any free port. If the default port is in use, the service takes the next free one;
    if a configured port is in use, the service does not start."""
    tls_certificate: Path | None = None
    """PEM file with the certificate and the certificates up to its root: the service then uses HTTPS on ``host``."""
    tls_key: Path | None = None
    """PEM file with the private key of the certificate, without a passphrase. Only its owner may write it, and
    only its owner and its group may read it."""
    allow_plain_http: bool = False
    """Listen without TLS on an address that other machines can reach. Anyone who can read the network traffic can then
    read data, and repeat a request for 15 minutes."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names accepted in requests, in addition to loopback names and to ``host`` if that is not a wildcard."""
    region: str = DEFAULT_REGION
    """AWS region. It must exist, because AWS's SDKs look it up."""

    isolation: Literal["auto", "full", "mount", "plain"] = "auto"
    """How jobs are isolated from the machine. ``full`` gives every training job a separate network, in which it can
    reach its instances and the service, but not the internet. ``mount`` uses the machine's network. ``plain`` isolates
    nothing. ``auto`` uses the best mode that works, and gives separate networks only to jobs of several instances and
    to jobs with EnableNetworkIsolation; other scripts may download data, as on SageMaker."""
    readable_paths: tuple[_Absolute, ...] = ()
    """Absolute paths of this machine that jobs may read although they are hidden in modes ``full`` and ``mount``: files
    and directories in the user's home directory, and the credentials and keys that ``SECURITY.md`` lists. Jobs on other
    machines of a cluster do not see them."""
    executor: Literal["local", "ray", "slurm"] = "local"
    """Where training and processing jobs run: ``local`` on this machine, ``ray`` on the machines of a Ray cluster,
    ``slurm`` on the nodes of a Slurm cluster."""
    cluster_servers: bool = False
    """With ``executor`` ``ray`` or ``slurm``: run endpoints and batch transform jobs on the cluster, too. Serverless
    variants always run on this machine."""
    ray_address: str = "auto"
    """The Ray cluster, as ``HOST:PORT``; ``auto`` is the cluster of this machine."""
    ray_instance_types: dict[str, MachineShare] = Field(default_factory=dict)
    """By instance type or pattern (``*``, ``?``): the CPUs and GPUs that an instance reserves, and the labels that its
    machine must have. Instances of other types reserve one CPU."""
    slurm_instance_types: dict[str, SlurmOptions] = Field(default_factory=dict)
    """By instance type or pattern (``*``, ``?``): what the Slurm allocation of a job asks for: partition, account, QOS,
    time limit, constraint, GRES, CPUs and memory of a node, exclusive nodes, further options of sbatch."""
    slurm_python: str = ""
    """Path of the Python with tidemill on the nodes of the Slurm cluster. Empty: the path of the service's Python."""
    slurm_prolog: tuple[str, ...] = ()
    """Lines of shell that run at the start of a Slurm allocation, such as ``module load`` and ``export``. Slurm stores
    them, and administrators can read them: they must not contain secrets."""
    lease_s: float = Field(default=60.0, ge=6.0)
    """Seconds without contact to the service after which an instance on a cluster ends itself, including its time to
    save. A lost instance is started again when its lease has ended. A running instance keeps the length with which it
    was started."""
    max_instances: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1)
    """Maximum number of training instances at a time; further jobs wait in order. Policies add no
    instance of an endpoint beyond it."""
    gpus: tuple[str, ...] | None = None
    """GPUs of this machine for training jobs, in the format of CUDA_VISIBLE_DEVICES: numbers or ``GPU-...``. Unset: the
    GPUs that nvidia-smi lists. Empty: none."""
    share_gpus: bool = False
    """Let several jobs use the same GPU at the same time. Otherwise a job waits for GPUs that no other job uses."""
    limit_to_instance_type: bool = False
    """Limit an instance of a job or endpoint to the memory and processors of its instance type, if SageMaker has that
    type, and the files of a training instance to VolumeSizeInGB."""
    instance_memory_mib: int | None = Field(default=None, ge=1)
    """Maximum memory of an instance of a job or endpoint, in MiB. If its processes use more, they are killed. Then a
    training job fails, and a model server is started again."""
    instance_cpus: int | None = Field(default=None, ge=1)
    """Maximum number of processors that an instance of a job or endpoint may use."""
    instance_processes: int | None = Field(default=None, ge=1)
    """Maximum number of processes of an instance, including about five of tidemill. If it has more, they are killed, as
    for ``instance_memory_mib``."""
    instance_disk_mib: int | None = Field(default=None, ge=1)
    """Maximum size of the files that an instance writes, in MiB. If they are larger, its processes are killed, as for
    ``instance_memory_mib``."""
    stop_grace_s: float = Field(default=120.0, gt=0)
    """Seconds between SIGTERM and SIGKILL when a job is stopped. Shorten it in tests only."""
    log_search_cpu_s: int = Field(default=5, ge=1)
    """Seconds of CPU that a search in a log may take: some regular expressions would never end."""
    warm: bool = False
    """Fork scripts from a process that has already imported TensorFlow. The how-to page *Start scripts sooner* lists
    which scripts."""
    default_framework: str = DEFAULT_TENSORFLOW
    """TensorFlow version of `tidemill train` without ``--framework-version``, and of warm processes."""

    invoke_max_bytes: int = 6 * 1024 * 1024
    """Maximum size of an InvokeEndpoint request body."""
    invoke_timeout_s: float = 60.0
    """Maximum seconds for a model to answer InvokeEndpoint."""
    serverless_idle_s: float = Field(default=300.0, gt=0)
    """Seconds without a request after which the server of a serverless endpoint is stopped; the next request starts
    it."""
    object_max_bytes: int = 5 * 1024**3
    """Maximum size of the body of one S3 PUT."""
    object_store: Annotated[str | None, AfterValidator(_check_object_store)] = None
    """Where the content of objects is stored: ``s3://bucket/prefix`` of another S3 that has an entry in ``remote_s3``.
    Unset: in the state directory. Earlier objects stay where they are, and can still be read."""
    object_copies_max_bytes: int = Field(default=20 * 1024**3, ge=0)
    """Maximum size of the copies of objects in another S3 that this machine keeps for later jobs."""
    fast_file_cache_max_bytes: int = Field(default=64 * 1024**3, ge=64 * 1024**2)
    """Maximum size of what a channel in FastFile mode keeps of another S3 on this machine's disk while the script runs.
    Half of the free space is the limit if it is less."""
    remote_s3: dict[str, RemoteS3] = Field(default_factory=dict)
    """By bucket name or pattern (``*``, ``?``): the S3 endpoint of training data in buckets that this service does not
    have. Other endpoints are never contacted."""
    webhooks: Annotated[dict[str, Webhook], AfterValidator(check_webhook_names)] = Field(default_factory=dict)
    """By a name of your choice: who receives the state changes of jobs, pipelines and endpoints. Other addresses are
    never called."""
    encryption: Literal["record", "refuse"] = "record"
    """Requests to encrypt stored data (KMS keys, ``x-amz-server-side-encryption``): ``record`` accepts and shows them,
    although tidemill encrypts nothing; ``refuse`` refuses them."""
    roles: _Policies = Field(default_factory=dict)
    """By role name: the permissions of the keys of jobs with that RoleArn, as an IAM policy document. Jobs with other
    roles get the built-in policy (`tidemill.core.roles`)."""
    images: dict[str, MappedImage] = Field(default_factory=dict)
    """By image name or pattern (``*``, ``?``): the environment that runs instead of an image of your own. Without an
    entry the tag's TensorFlow version and Python select it. Images are never run."""
    otlp_endpoint: Annotated[str | None, AfterValidator(_check_otlp_endpoint)] = None
    """OpenTelemetry collector that gets the traces of requests and jobs by OTLP over HTTP, e.g.
    ``http://127.0.0.1:4318``. Needs the extra ``tidemill[otel]``. Unset: nothing is traced."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest severity of events in the service's log: debug, info, warning or error."""
    service_log_max_bytes: int = Field(default=16 * 1024**2, ge=4096)
    """Size of ``service.log``, the log of a service in the background, after which it goes on in a new file."""
    service_log_files: int = Field(default=4, ge=1, le=100)
    """Number of such files that are kept, the current one included."""

    @model_validator(mode="after")
    def _keep_state_hidden(self) -> Self:
        state = self.state_dir.resolve()  # links in either path lead to the same files
        for path in self.readable_paths:
            shown = path.resolve()
            if state.is_relative_to(shown) or shown.is_relative_to(state):
                raise ValueError(
                    f"readable_paths: {str(path)!r} would show jobs the state directory {str(state)!r}, with the"
                    " service's keys; name paths that neither contain it nor are in it"
                )
        return self

    @property
    def named_endpoint(self) -> NamedEndpoint | None:
        """The service that the environment or the settings file names; None selects this user's own service."""
        if named := named_in_environment():
            return named
        return NamedEndpoint(self.endpoint_url, "the setting endpoint_url") if self.endpoint_url else None

    @property
    def limit_policy(self) -> LimitPolicy:
        """The settings that limit instances."""
        return LimitPolicy(
            memory_mib=self.instance_memory_mib,
            cpus=self.instance_cpus,
            processes=self.instance_processes,
            disk_mib=self.instance_disk_mib,
            by_type=self.limit_to_instance_type,
        )

    @property
    def port_is_chosen(self) -> bool:
        """Whether a flag, the environment or the settings file sets the port."""
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
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=settings_file())
