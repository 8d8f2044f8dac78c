"""Open the operations for who watches: what has changed, what instances use, and the scalars of jobs."""

from collections.abc import Sequence

from tidemill.control.changes import ChangeFeed
from tidemill.control.instance_samples import InstanceSamples
from tidemill.control.scalars.scalars import TrainingScalars
from tidemill.control.scalars.sources import EventSources
from tidemill.server.executors import Executors
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores
from tidemill.services.page.changes import VIEWED, ChangeOperations
from tidemill.services.page.samples import SampleOperations
from tidemill.services.page.scalars import ScalarOperations
from tidemill.wire.exchange import Service


def open_live(start: Startup, stores: Stores, executors: Executors) -> Sequence[Service]:
    """Return the operations.

    Args:
        stores: Announce changes, and have the uploaded files.
        executors: Have the files of running instances.
    """
    feed = ChangeFeed(VIEWED)
    stores.records.when_changed(feed.note)
    start.ends_waits.append(feed.close)
    sources = EventSources(stores.objects, executors.executor)
    return (
        ChangeOperations(feed),
        SampleOperations(InstanceSamples(stores.records, logs=start.state.logs)),
        ScalarOperations(TrainingScalars(stores.records, sources)),
    )
