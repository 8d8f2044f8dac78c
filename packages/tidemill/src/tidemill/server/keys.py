"""The owner's access key pair: generated at the first start, stored in a file that only the owner can read.

There is no default key, and the service does not start without one: every request is signed, on loopback too.
"""

import os
import secrets
import stat
import string
from dataclasses import dataclass, field
from pathlib import Path

from tidemill.core.files import read_json, write_json
from tidemill.errors import ConfigurationError

_ID_ALPHABET = string.ascii_uppercase + "234567"
_SECRET_ALPHABET = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class Keys:
    """The key pair with which clients sign requests.

    Attributes:
        access_key_id: 20 characters; begins with ``AKIA`` like a long-term key of AWS.
        secret_access_key: 40 characters. Never shown by ``repr``.
    """

    access_key_id: str
    secret_access_key: str = field(repr=False)

    @classmethod
    def generate(cls) -> "Keys":
        """Return a new random pair."""
        return cls(
            "AKIA" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(16)),
            "".join(secrets.choice(_SECRET_ALPHABET) for _ in range(40)),
        )

    @classmethod
    def load(cls, file: Path) -> "Keys | None":
        """Return the key pair in ``file``, or None if the file does not exist.

        Raises:
            ConfigurationError: Others may read the file, or it does not hold a key pair.
        """
        try:
            status = file.stat()
        except FileNotFoundError:
            return None
        mode = stat.S_IMODE(status.st_mode)
        if mode & 0o077 or status.st_uid != os.geteuid():
            raise ConfigurationError(
                f"keys file {file} has mode {mode:04o} and owner {status.st_uid}: it must be readable by you alone"
                f" (mode 0600); if nobody else has read it, `chmod 600 {file}`, else delete it and start the service"
                " again: that makes new keys"
            )
        return cls._parse(file)

    @classmethod
    def load_or_create(cls, file: Path) -> "Keys":
        """Return the pair in ``file``; the first call generates it and stores it durably, with mode 0600.

        Raises:
            ConfigurationError: As for `load`.
        """
        keys = cls.load(file)
        if keys is None:
            keys = cls.generate()
            record = {"access_key_id": keys.access_key_id, "secret_access_key": keys.secret_access_key}
            write_json(file, {"version": 1} | record)
        return keys

    @classmethod
    def _parse(cls, file: Path) -> "Keys":
        try:
            record = read_json(file) or {}
            keys = cls(record["access_key_id"], record["secret_access_key"])
            if not all(isinstance(text, str) and text for text in (keys.access_key_id, keys.secret_access_key)):
                raise ValueError("empty key")
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigurationError(
                f"keys file {file} does not hold a key pair ({type(error).__name__}: {error}); restore it, or delete it"
                " and start the service again: that makes new keys"
            ) from error
        return keys
