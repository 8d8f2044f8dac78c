"""Tests of the model-parallel library, with their helper modules."""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
sys.path.insert(0, str(Path(__file__).parent))

import pytest

import ranks

PARTS = ("smp_first", "smp_rest", "smp_long", "smp_saved")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give `smp_rest` to a test without a mark, so that one of the make targets runs it."""
    if not any(item.get_closest_marker(part) for part in PARTS):
        item.add_marker("smp_rest")


@pytest.fixture(scope="session", autouse=True)
def _end_ranks():
    yield
    ranks.close_all()
