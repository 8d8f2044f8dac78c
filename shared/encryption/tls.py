"""TLS 1.3 between processes that share a secret. Each side proves to the other that it has the secret."""

from __future__ import annotations

import os
import ssl
import tempfile
from functools import lru_cache

from .certificate import make_certificate


@lru_cache(maxsize=8)
def tls_context(secret: bytes, *, server: bool) -> ssl.SSLContext:
    """Return the TLS context of one side.

    Args:
        secret: The secret that only the two sides have.
        server: True on the listening side.
    """
    certificate, key = make_certificate(secret)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # all processes of the job have the same certificate, whatever their host
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=certificate)
    if server:
        context.num_tickets = 0  # novermin: nothing is resumed, and Python 3.7 keeps the attribute without an effect
    with tempfile.TemporaryDirectory() as directory:  # mode 0700; OpenSSL takes a chain and its key from a file alone
        path = os.path.join(directory, "both.pem")  # noqa: PTH118 - as cheap as it gets in Python 3.7
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:  # noqa: PTH123
            file.write(certificate + key)
        context.load_cert_chain(path)
    return context
