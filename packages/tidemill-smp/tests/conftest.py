"""Tests of the model-parallel library, with their helper modules."""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
sys.path.insert(0, str(Path(__file__).parent))

import pytest

import ranks


@pytest.fixture(scope="session", autouse=True)
def _end_ranks():
    yield
    ranks.close_all()
