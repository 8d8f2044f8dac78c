"""Tests of the compiler begin to compile at once, also in other processes, so that they need only a few steps."""

import os

os.environ["TIDEMILL_COMPILER_MAX_COST"] = "inf"
