"""Derive a certificate and its private key from a secret, so that all processes with the secret have the same pair.

TLS in the standard library requires certificates, but the processes of a job share only a secret. This module derives a
P-256 key and a self-signed certificate from the secret. Each side of a connection presents this certificate and accepts
no other, so a process without the secret can neither connect nor accept connections.

The key signs the certificate, here, and the TLS handshakes, in OpenSSL.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

__all__ = ["make_certificate"]

# The curve y**2 = x**3 - 3*x + b over the integers modulo _P, and the order of its generator (FIPS 186-4, D.1.2.3).
_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_EC_PUBLIC_KEY = bytes.fromhex("06072a8648ce3d0201")
_PRIME256V1 = bytes.fromhex("06082a8648ce3d030107")
_ECDSA_WITH_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")
_COMMON_NAME = bytes.fromhex("0603550403")
_INTEGER, _BIT_STRING, _OCTET_STRING, _UTF8, _SEQUENCE, _SET = 0x02, 0x03, 0x04, 0x0C, 0x30, 0x31
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_VERSION_3 = bytes.fromhex("a003020102")
_POINT_BYTES = 32


def make_certificate(secret: bytes) -> tuple[str, str]:
    """Return a certificate and its private key, in PEM.

    Args:
        secret: The job's secret, at least 16 bytes.
    """
    key = _number(secret, b"key")
    public = b"\x04" + b"".join(_bytes(each) for each in _multiply(key, _G))
    name = _der(_SEQUENCE, _der(_SET, _der(_SEQUENCE, _COMMON_NAME + _der(_UTF8, b"a job of tidemill"))))
    body = _der(
        _SEQUENCE,
        _VERSION_3
        + _integer(_number(secret, b"serial") >> 128)
        + _ECDSA_WITH_SHA256
        + name
        # No expiry: the secret ends with the job, and the clocks of machines may differ.
        + _der(_SEQUENCE, _der(_UTC_TIME, b"000101000000Z") + _der(_GENERALIZED_TIME, b"99991231235959Z"))
        + name
        + _der(_SEQUENCE, _der(_SEQUENCE, _EC_PUBLIC_KEY + _PRIME256V1) + _der(_BIT_STRING, b"\0" + public)),
    )
    signature = _der(_SEQUENCE, b"".join(_integer(each) for each in _sign(key, body, secret)))
    certificate = _der(_SEQUENCE, body + _ECDSA_WITH_SHA256 + _der(_BIT_STRING, b"\0" + signature))
    private = _der(
        _SEQUENCE, _integer(1) + _der(_OCTET_STRING, _bytes(key)) + _der(0xA0, _PRIME256V1)
    )  # RFC 5915, without the public key
    return _pem("CERTIFICATE", certificate), _pem("EC PRIVATE KEY", private)


def _number(secret: bytes, use: bytes) -> int:
    """Return a number from 1 to _N - 1. Reducing 512 bits modulo a 256-bit number keeps the distribution uniform."""
    found = hmac.new(secret, b"tidemill certificate " + use, hashlib.sha512).digest()
    return 1 + int.from_bytes(found, "big") % (_N - 1)


def _sign(key: int, message: bytes, secret: bytes) -> tuple[int, int]:
    """Return an ECDSA signature with SHA-256. The nonce is derived from secret and message, as in RFC 6979."""
    nonce = _number(secret, b"nonce " + hashlib.sha256(message).digest())
    r = _multiply(nonce, _G)[0] % _N
    s = pow(nonce, _N - 2, _N) * (int.from_bytes(hashlib.sha256(message).digest(), "big") + r * key) % _N
    return r, s


def _multiply(factor: int, point: tuple[int, int]) -> tuple[int, int]:
    result: tuple[int, int] | None = None
    for bit in bin(factor)[2:]:
        result = _add(result, result)
        if bit == "1":
            result = _add(result, point)
    assert result is not None, "the factor is between 0 and the order"
    return result


def _add(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    if one is None or other is None:
        return one or other
    (x1, y1), (x2, y2) = one, other
    if x1 == x2:
        if (y1 + y2) % _P == 0:
            return None
        slope = (3 * x1 * x1 - 3) * pow(2 * y1, _P - 2, _P)
    else:
        slope = (y2 - y1) * pow(x2 - x1, _P - 2, _P)
    x = (slope * slope - x1 - x2) % _P
    return x, (slope * (x1 - x) - y1) % _P


def _bytes(number: int) -> bytes:
    return number.to_bytes(_POINT_BYTES, "big")


def _integer(number: int) -> bytes:
    return _der(_INTEGER, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _pem(label: str, data: bytes) -> str:
    text = base64.encodebytes(data).decode("ascii")
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----\n"
