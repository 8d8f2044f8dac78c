"""ServerlessInferenceConfig: an endpoint that runs a server only while requests arrive."""

from typing import Any


class ServerlessInferenceConfig:
    """Serve at a serverless endpoint: the first request starts its server, which is stopped when it is idle.

    Args:
        memory_size_in_mb: Sent as ``MemorySizeInMB``: 1024, 2048, 3072, 4096, 5120 or 6144. Shown, without effect.
            Default: 2048.
        max_concurrency: Maximum number of concurrent requests; further ones get ThrottlingException. Default: 5.
        provisioned_concurrency: Keep the server even when it is idle, for this many concurrent requests. Default: the
            server is stopped when it is idle.

    Example:
        >>> ServerlessInferenceConfig(max_concurrency=2).to_request()
        {'MemorySizeInMB': 2048, 'MaxConcurrency': 2}
    """

    def __init__(
        self, memory_size_in_mb: int = 2048, max_concurrency: int = 5, provisioned_concurrency: int | None = None
    ) -> None:
        self.memory_size_in_mb = memory_size_in_mb
        self.max_concurrency = max_concurrency
        self.provisioned_concurrency = provisioned_concurrency

    def to_request(self) -> dict[str, Any]:
        """Return the ServerlessConfig member of a production variant.

        Returns:
            The member; arguments that were not given are left out.
        """
        request = {"MemorySizeInMB": self.memory_size_in_mb, "MaxConcurrency": self.max_concurrency}
        if self.provisioned_concurrency is not None:
            request["ProvisionedConcurrency"] = self.provisioned_concurrency
        return request


def serverless_request(config: Any) -> Any:
    """Return the request member of a configuration of this SDK or of AWS's; a mapping is already that member.

    Args:
        config: A configuration, or a mapping.
    """
    if isinstance(config, ServerlessInferenceConfig):
        return config.to_request()
    convert = getattr(config, "_to_request_dict", None)
    return convert() if convert else config
