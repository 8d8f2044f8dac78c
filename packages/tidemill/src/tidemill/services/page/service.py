"""The service ``tidemill``: its operations are listed in ``wire/models/tidemill``, one file here for each noun."""

from tidemill.services.operations import OperationGroups


class PageService(OperationGroups):
    """All handlers of the service; each part has those of one noun."""
