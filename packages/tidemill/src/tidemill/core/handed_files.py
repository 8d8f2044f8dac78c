"""How a client of the same user and machine hands an open file to the service, instead of sending its bytes.

The client connects to a socket in the state directory, whose path the service announces, and sends `GREETING` with the
descriptor of the file (SCM_RIGHTS). The service copies the file and answers with a ticket. With `media_type` of the
ticket, an ordinary signed PutObject without a body then stores the copy as an object.
"""

SOCKET_NAME = "files.sock"
SOCKET_HEADER = "x-tidemill-files-socket"
"""Header of the reply to ListObjectsV2 with MaxKeys 0: the percent-encoded path of the socket."""
GREETING = b"tidemill file 1"
MESSAGE_MAX_BYTES = 1024
"""The service sends messages of a word and a value: ``copied BYTES``, ``ticket TICKET`` or ``refused REASON``."""
MEDIA_TYPE = "application/vnd.tidemill.file"
MULTIPART_BYTES = 8 * 1024 * 1024
"""From this size on boto3 uploads in parts, so that ETags are no MD5 of the content."""


def media_type(ticket: str) -> str:
    """Return the media type of a PutObject that stores a handed-over file.

    Args:
        ticket: The service's ticket for the file.
    """
    return f"{MEDIA_TYPE}; ticket={ticket}"


def ticket_of(content_type: str) -> str | None:
    """Return the ticket in a media type, or None if it is another media type.

    Args:
        content_type: Content-Type of a request.
    """
    kind, _, ticket = content_type.partition("; ticket=")
    return ticket if kind == MEDIA_TYPE else None
