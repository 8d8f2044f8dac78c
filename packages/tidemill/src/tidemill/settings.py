"""One settings object: defaults, then the TOML file, then the environment (``TIDEMILL_*``), then flags.

The file is ``$TIDEMILL_CONFIG``, else ``~/.config/tidemill/config.toml``. Nothing else in the project reads
``TIDEMILL_*`` variables, except the fault points.
"""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PlainValidator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from tidemill.core.names import DEFAULT_REGION
from tidemill.core.policy import Policy
from tidemill.core.policy_document import read_policy
from tidemill.core.remotes import RemoteS3
from tidemill.core.roles import check_role_names

__all__ = ["Settings"]

_Policies = Annotated[dict[str, Annotated[Policy, PlainValidator(read_policy)]], AfterValidator(check_role_names)]


def _xdg(variable: str, fallback: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / fallback) / "tidemill"


class Settings(BaseSettings):
    """What can be set. Sizes are bytes, times are seconds."""

    model_config = SettingsConfigDict(env_prefix="TIDEMILL_", extra="forbid", frozen=True)

    state_dir: Path = Field(default_factory=lambda: _xdg("XDG_DATA_HOME", ".local/share"))
    """Where the service keeps its database, objects, logs and jobs. One service at a time."""
    environments_dir: Path = Field(default_factory=lambda: _xdg("XDG_CACHE_HOME", ".cache") / "environments")
    """Where environments for jobs and endpoints are built. May be shared by several services of one user."""
    endpoint_url: str | None = None
    """Which service clients talk to. Unset: this user's local service, started when need be."""

    host: str = "127.0.0.1"
    port: int = Field(default=8780, ge=0, le=65535)
    """Port of the service; 0 takes a free one."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names accepted in requests besides loopback names."""
    region: str = DEFAULT_REGION
    """A real AWS region: AWS's SDKs look it up."""

    isolation: Literal["auto", "mount", "plain"] = "auto"
    """How jobs are separated from the machine; ``auto`` takes the best mode that works here."""
    max_instances: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1)
    """Training instances that run at the same time; further jobs wait in order."""
    stop_grace_s: float = Field(default=120.0, gt=0)
    """Time between SIGTERM and SIGKILL when a job is stopped. Shorten it in tests only."""
    warm: bool = False
    """Fork scripts from a process that has TensorFlow imported already."""
    default_framework: str = "2.21"
    """TensorFlow version of jobs that name none that can be had."""

    invoke_max_bytes: int = 6 * 1024 * 1024
    """Largest InvokeEndpoint request body."""
    invoke_timeout_s: float = 60.0
    """Longest time that a model may take to answer InvokeEndpoint."""
    object_max_bytes: int = 5 * 1024**3
    """Largest body of one S3 PUT."""
    remote_s3: dict[str, RemoteS3] = Field(default_factory=dict)
    """By bucket name or pattern (``*``, ``?``): where training data lies whose bucket this service does not hold.
    Nothing but what is named here is ever asked."""
    roles: _Policies = Field(default_factory=dict)
    """By role name: what the keys of a job with that RoleArn may do, as an IAM policy document. A job whose role is
    not named here gets the built-in policy (`tidemill.core.roles`)."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"

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
