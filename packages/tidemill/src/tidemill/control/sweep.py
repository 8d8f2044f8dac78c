"""At the start: finish what the last server could not, between the end of a job and the end of its clean-up."""

import asyncio
import json

from tidemill.control.hosting import ENDPOINT
from tidemill.control.publish import Publisher
from tidemill.control.training import TRAINING_JOB
from tidemill.core.training import TrainingJob
from tidemill.executors.base import Executor
from tidemill.store.base import RecordStore

__all__ = ["sweep"]
