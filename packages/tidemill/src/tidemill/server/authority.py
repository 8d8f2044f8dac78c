"""Certificates for AWS's host names, signed by an authority that only the shells of `tidemill env --sts` trust."""

import ssl
import tempfile
from functools import lru_cache
from pathlib import Path

import trustme

from tidemill.core.files import write_durably

_CONTEXTS_MAX = 256


class Authority:
    """Signs a certificate for each host name when it is needed first.

    Args:
        certificate: PEM file of the authority's certificate, for clients.
        key: PEM file of its private key, for the owner alone. Both are written if one of them is missing.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        if certificate.exists() and key.exists():
            self._ca = trustme.CA.from_pem(certificate.read_bytes(), key.read_bytes())
        else:
            self._ca = trustme.CA(organization_name="tidemill", organization_unit_name="AWS's hosts, here")
            write_durably(key, self._ca.private_key_pem.bytes())
            write_durably(certificate, self._ca.cert_pem.bytes())
        self.context = lru_cache(maxsize=_CONTEXTS_MAX)(self._context)

    def _context(self, host: str) -> ssl.SSLContext:
        """Return a server's TLS context for ``host``, whose certificate is made now."""
        leaf = self._ca.issue_cert(host)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        # Python's ssl loads chains from files only.
        with tempfile.NamedTemporaryFile() as file:
            file.write(leaf.private_key_and_cert_chain_pem.bytes())
            file.flush()
            context.load_cert_chain(file.name)
        return context
