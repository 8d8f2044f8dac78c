"""Errors of ranks that cannot connect. Each library converts them into its own exceptions."""

from __future__ import annotations


class RanksError(RuntimeError):
    """This rank cannot connect to the others."""


class RankSettingError(RanksError):
    """An environment variable about ranks is missing or malformed."""


class MissingRanksError(RanksError):
    """Other ranks did not come within the time limit."""
