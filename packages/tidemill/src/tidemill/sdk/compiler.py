"""TrainingCompilerConfig: enables the training compiler."""

from typing import Any

__all__ = ["TrainingCompilerConfig", "compiler_hyperparameters"]


class TrainingCompilerConfig:
    """Enables the training compiler, which compiles training steps with XLA.

    Args:
        enabled: Whether to use the compiler. Default: True.
        debug: Whether to write XLA's dumps to ``output/data/compiler``. Default: False.
        machine_settings: Whether this and later jobs of the script try machine settings (threads, oneDNN, allocator),
            one per job, and then use the fastest one. Results may then differ in the last digits from job to job.
            AWS's class does not have this argument. Default: False.

    Raises:
        ValueError: An argument is neither True nor False, or `machine_settings` is True without `enabled`.

    Example:
        >>> TrainingCompilerConfig().to_hyperparameters()
        {'sagemaker_training_compiler_enabled': True, 'sagemaker_training_compiler_debug_mode': False}
    """

    def __init__(self, enabled: bool = True, debug: bool = False, *, machine_settings: bool = False) -> None:
        for name, value in (("enabled", enabled), ("debug", debug), ("machine_settings", machine_settings)):
            if not isinstance(value, bool):
                raise ValueError(f"TrainingCompilerConfig: {name}={value!r}; expected True or False")
        if machine_settings and not enabled:
            raise ValueError("TrainingCompilerConfig: machine_settings=True has no effect without enabled=True")
        self.enabled = enabled
        self.debug = debug
        self.machine_settings = machine_settings

    def __repr__(self) -> str:
        own = ", machine_settings=True" if self.machine_settings else ""
        return f"TrainingCompilerConfig(enabled={self.enabled}, debug={self.debug}{own})"

    def to_hyperparameters(self) -> dict[str, bool]:
        """Return the compiler's hyperparameters.

        Returns:
            Python values by name, not yet JSON-encoded.
        """
        # AWS's containers do not know the third name, so it is sent only if it is used.
        own = {"sagemaker_training_compiler_machine_settings": True} if self.machine_settings else {}
        return {
            "sagemaker_training_compiler_enabled": self.enabled,
            "sagemaker_training_compiler_debug_mode": self.debug,
            **own,
        }


def compiler_hyperparameters(config: Any) -> dict[str, Any]:
    """Return the hyperparameters of ``compiler_config``, not yet encoded; none for None.

    Args:
        config: A `TrainingCompilerConfig`, or AWS's own.

    Raises:
        ValueError: ``config`` is neither of them.
    """
    if config is None:
        return {}
    convert = getattr(config, "to_hyperparameters", None) or getattr(config, "_to_hyperparameter_dict", None)
    if convert is None:
        raise ValueError(f"compiler_config={config!r}; expected a TrainingCompilerConfig")
    return convert()
