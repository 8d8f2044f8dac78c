"""Open what the service stores: records, objects and backups."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from tidemill.control.webhooks.outbox import Outbox
from tidemill.core.clock import Clock, SystemClock
from tidemill.core.names import S3Uri, default_bucket
from tidemill.errors import TidemillError
from tidemill.server.database import open_postgresql, open_sqlite
from tidemill.server.startup import Startup
from tidemill.store.database.base import Database
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.backup import Backups
from tidemill.store.objects.contents import RemoteSettings
from tidemill.store.objects.store import ObjectStore
from tidemill.store.records.store import SqlRecordStore

_log = structlog.get_logger("tidemill.server")
_BACKUP_RETRY_S = 600.0
_TIDY_INTERVAL_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """What the service stores.

    Attributes:
        database: Stores the rows.
        clock: Provides the current time, which a shared database gives to all its services.
        records: Jobs, models, endpoints and keys.
        outbox: State changes that webhooks have not received yet.
        objects: The objects of S3.
        backups: Backups of the database; None for PostgreSQL, which has its own.
        is_certain: Returns whether this service still leads; None if no other service can take over.
    """

    database: Database
    clock: Clock
    records: SqlRecordStore
    outbox: Outbox
    objects: ObjectStore
    backups: Backups | None
    is_certain: Callable[[], bool] | None

    async def sweep(self) -> None:
        """Move contents without a row to the trash, and then remove what is too old from it, until cancelled."""
        swept = await self.objects.sweep()
        if swept.removed:
            _log.info("objects.swept", files=swept.removed)
        if swept.folder is not None:
            _log.warning(
                "objects.set_aside",
                files=swept.set_aside,
                size_bytes=swept.size_bytes,
                folder=str(swept.folder),
                reason="the database does not know them: it is older than they are, or a put was interrupted",
                kept="24 hours, and as long as a backup that is older than this sweep",
            )
        while True:
            try:
                removed = await self.objects.tidy(needed_since_ms=self.backups.oldest_ms() if self.backups else None)
                if removed:
                    _log.info("objects.trash_removed", files=removed)
            except (OSError, TidemillError) as error:
                _log.warning("objects.tidy_failed", reason=str(error))
            await asyncio.sleep(_TIDY_INTERVAL_S)


async def open_stores(start: Startup) -> Stores:
    """Open the stores, and close them when the service ends."""
    settings, state = start.settings, start.state
    clock: Clock = SystemClock()
    backups, is_certain = None, None
    if settings.database_url is not None:
        database = start.stack.enter_context(
            open_postgresql(settings.database_url.get_secret_value(), state, metadata=metadata)
        )
        database.lead.publish(local_url=start.url, relay=start.relay)
        clock, is_certain = database.clock, database.lead.is_certain
    else:
        database = start.stack.enter_context(open_sqlite(state, metadata=metadata))
        backups = Backups(database, state.backups, clock=clock)
        start.run(_make_backups(backups), "backups")
    outbox = Outbox(settings.webhooks)
    return Stores(
        database=database,
        clock=clock,
        records=SqlRecordStore(database, clock=clock, also=outbox.note if settings.webhooks else None),
        outbox=outbox,
        objects=await _open_objects(start, database, clock),
        backups=backups,
        is_certain=is_certain,
    )


async def _open_objects(start: Startup, database: Database, clock: Clock) -> ObjectStore:
    settings = start.settings
    remote = RemoteSettings(
        S3Uri.parse(settings.object_store) if settings.object_store else None,
        remotes=settings.remote_s3,
        copies_max_bytes=settings.object_copies_max_bytes,
    )
    objects = ObjectStore(database, start.state.objects, clock=clock, remote=remote)
    start.stack.push_async_callback(objects.close)
    taken_back = await asyncio.to_thread(objects.take_back)
    if taken_back:
        _log.info("objects.taken_back", files=taken_back, reason="rows of the database name them again")
    await asyncio.to_thread(objects.contents.remote.check)
    if remote.home is not None:
        _log.info("service.object_store", uri=str(remote.home))
    start.run(objects.contents.remote.keep_clean(), "clean-up of the other S3")
    await objects.ensure_bucket(default_bucket(settings.region))
    return objects


async def _make_backups(backups: Backups) -> None:
    while True:
        await asyncio.sleep(backups.wait_s())
        try:
            await backups.make()
        except (OSError, TidemillError) as error:
            _log.warning("backup.failed", reason=str(error))
            await asyncio.sleep(_BACKUP_RETRY_S)
