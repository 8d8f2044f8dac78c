"""What hooks are configured with. The values are kept for scripts that read them, and nothing else uses them."""

from __future__ import annotations

import enum
from typing import Any


class modes(enum.Enum):  # noqa: N801 - the name of the real library
    """What the script does with its model."""

    TRAIN = 1
    EVAL = 2
    PREDICT = 3
    GLOBAL = 4


class CollectionKeys:
    """Names of the usual collections of tensors."""

    DEFAULT = "default"
    ALL = "all"
    WEIGHTS = "weights"
    BIASES = "biases"
    GRADIENTS = "gradients"
    LOSSES = "losses"
    METRICS = "metrics"
    INPUTS = "inputs"
    OUTPUTS = "outputs"
    LAYERS = "layers"
    OPTIMIZER_VARIABLES = "optimizer_variables"
    SM_METRICS = "sm_metrics"


class SaveConfigMode:
    """Which steps of one mode would be saved.

    Args:
        save_interval: Steps between two saved ones. Default: 500.
        start_step: First step. Default: 0.
        end_step: Step at which saving ends. Default: none.
        save_steps: The steps themselves. Default: by `save_interval`.
    """

    def __init__(
        self,
        save_interval: int | None = None,
        start_step: int | None = None,
        end_step: int | None = None,
        save_steps: list[int] | None = None,
    ) -> None:
        self.save_interval = save_interval or 500
        self.start_step = start_step or 0
        self.end_step = end_step
        self.save_steps = save_steps or []


class SaveConfig(SaveConfigMode):
    """Which steps would be saved.

    Args:
        mode_save_configs: By mode: a `SaveConfigMode`. Default: the other arguments, for each mode.
        steps: The arguments of `SaveConfigMode`, by position or name.
    """

    def __init__(self, mode_save_configs: dict[modes, SaveConfigMode] | None = None, *args: Any, **steps: Any) -> None:
        super().__init__(*args, **steps)
        self.mode_save_configs = mode_save_configs or {}


class ReductionConfig:
    """Which reductions of tensors would be saved.

    Args:
        reductions: Names such as ``mean``. Default: none.
        abs_reductions: The same, of absolute values. Default: none.
        norms: ``l1`` or ``l2``. Default: none.
        abs_norms: The same, of absolute values. Default: none.
        save_raw_tensor: Whether the tensor itself would be saved as well. Default: False.
        save_shape: Whether its shape would be saved. Default: False.
    """

    def __init__(
        self,
        reductions: list[str] | None = None,
        abs_reductions: list[str] | None = None,
        norms: list[str] | None = None,
        abs_norms: list[str] | None = None,
        save_raw_tensor: bool = False,
        save_shape: bool = False,
    ) -> None:
        self.reductions = reductions or []
        self.abs_reductions = abs_reductions or []
        self.norms = norms or []
        self.abs_norms = abs_norms or []
        self.save_raw_tensor = save_raw_tensor
        self.save_shape = save_shape
