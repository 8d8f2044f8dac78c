"""TrainingCompilerConfig: switches the training compiler on."""

__all__ = ["TrainingCompilerConfig"]


class TrainingCompilerConfig:
    """Compile the training graph with XLA.

    Args:
        enabled: Whether the compiler is used.
        debug: Whether its dumps are written to ``output/data/compiler``.

    Example:
        >>> TrainingCompilerConfig().to_hyperparameters()
        {'sagemaker_training_compiler_enabled': True, 'sagemaker_training_compiler_debug_mode': False}
    """

    def __init__(self, enabled: bool = True, debug: bool = False) -> None:
        for name, value in (("enabled", enabled), ("debug", debug)):
            if not isinstance(value, bool):
                raise ValueError(f"TrainingCompilerConfig: {name}={value!r}; expected True or False")
        self.enabled = enabled
        self.debug = debug

    def to_hyperparameters(self) -> dict[str, bool]:
        """What the training environment reads, not yet encoded."""
        return {
            "sagemaker_training_compiler_enabled": self.enabled,
            "sagemaker_training_compiler_debug_mode": self.debug,
        }
