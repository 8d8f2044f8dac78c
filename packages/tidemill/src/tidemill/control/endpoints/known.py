"""Cache stored endpoints, so that a request to a model need not read and verify a record."""

from tidemill.control.resources import ENDPOINT
from tidemill.core.hosting import Endpoint
from tidemill.store.records.base import RecordStore

__all__ = ["KnownEndpoints"]


class KnownEndpoints:
    """Caches endpoints until any endpoint's record changes.

    Args:
        records: Stores the endpoints.
    """

    def __init__(self, records: RecordStore) -> None:
        self._records = records
        self._generation: int | None = None
        self._endpoints: dict[str, Endpoint] = {}

    def get(self, name: str) -> Endpoint | None:
        """Return the stored endpoint of that name, or None if there is no such endpoint."""
        generation = self._records.generation(ENDPOINT)
        if generation is None or generation != self._generation:
            self._endpoints.clear()
            self._generation = generation
        known = self._endpoints.get(name)
        if known is not None:
            return known
        record = self._records.get(ENDPOINT, name)
        if record is None:
            return None
        endpoint = Endpoint.from_document(record.document)
        if generation is not None and generation == self._records.generation(ENDPOINT):
            self._endpoints[name] = endpoint
        return endpoint
