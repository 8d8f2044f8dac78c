"""TrainingCompilerConfig: enables the training compiler."""

from typing import Any


class TrainingCompilerConfig:
    """Enables the training compiler, which compiles training steps with XLA.

    Args:
        enabled: Whether to use the compiler. Default: True.
        debug: Whether to write XLA's dumps to ``output/data/compiler``. Default: False.
        max_cost: The share of a training's time that compiling it may cost, e.g. 0.1; ``math.inf`` compiles in the
            first step, and 0 only uses what earlier jobs decided. AWS's class does not have this argument. Default:
            None, which means 0.04.

    Raises:
        ValueError: `enabled` or `debug` is neither True nor False, `max_cost` is no share, or `max_cost` is given
            without `enabled`.

    Example:
        >>> TrainingCompilerConfig().to_hyperparameters()
        {'sagemaker_training_compiler_enabled': True, 'sagemaker_training_compiler_debug_mode': False}
    """

    def __init__(
        self,
        enabled: bool = True,
        debug: bool = False,
        *,
        max_cost: float | None = None,
    ) -> None:
        for name, value in (("enabled", enabled), ("debug", debug)):
            if not isinstance(value, bool):
                raise ValueError(f"TrainingCompilerConfig: {name}={value!r}; expected True or False")
        if max_cost is not None and (isinstance(max_cost, bool) or not max_cost >= 0):
            raise ValueError(
                f"TrainingCompilerConfig: max_cost={max_cost!r}; expected a share such as 0.1, or math.inf"
            )
        if max_cost is not None and not enabled:
            raise ValueError(f"TrainingCompilerConfig: max_cost={max_cost!r} has no effect without enabled=True")
        self.enabled = enabled
        self.debug = debug
        self.max_cost = max_cost

    def __repr__(self) -> str:
        own = f", max_cost={self.max_cost!r}" if self.max_cost is not None else ""
        return f"TrainingCompilerConfig(enabled={self.enabled}, debug={self.debug}{own})"

    def to_hyperparameters(self) -> dict[str, bool | str]:
        """Return the compiler's hyperparameters.

        Returns:
            Python values by name, not yet JSON-encoded.
        """
        # AWS's containers do not know this name, so it is sent only if it is used.
        own: dict[str, bool | str] = {}
        if self.max_cost is not None:
            own["sagemaker_training_compiler_max_cost"] = str(self.max_cost)  # as text, because JSON has no infinity
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
