"""Derive a certificate and its private key from a secret, so that all processes with the secret have the same pair.

TLS in the standard library requires certificates, but the processes of a job share only a secret. This module derives
an Ed25519 key from the secret. Ed25519 signatures are deterministic, so all processes also make the same self-signed
certificate. Each side of a connection presents this certificate and accepts no other, so a process without the secret
can neither connect nor accept connections.

The package `cryptography` does all of this. It is imported only when a certificate is made.
"""

from __future__ import annotations

from datetime import datetime
from importlib.util import find_spec

_KEY_BYTES = 32
_BEGIN, _END = datetime(2000, 1, 1), datetime(9999, 12, 31, 23, 59, 59)  # in UTC
"""A certificate does not expire: the secret ends with the job, and the clocks of machines may differ."""


def find_obstacle() -> str:
    """Return why this process cannot make certificates; empty if it can."""
    if find_spec("cryptography") is None:
        return "encryption needs the package cryptography, which is not installed: `pip install cryptography`"
    return ""


def make_certificate(secret: bytes) -> tuple[str, str]:
    """Return a certificate and its private key, in PEM.

    Args:
        secret: The job's secret, at least 16 bytes.

    Raises:
        ImportError: `cryptography` is not installed, see `find_obstacle`.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    seed = HKDF(SHA256(), _KEY_BYTES, salt=None, info=b"tidemill certificate key").derive(secret)
    key = Ed25519PrivateKey.from_private_bytes(seed)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a job of tidemill")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)  # different secrets have different keys, so nothing depends on the number
        .not_valid_before(_BEGIN)
        .not_valid_after(_END)
        .sign(key, None)
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM).decode("ascii"), private.decode("ascii")
