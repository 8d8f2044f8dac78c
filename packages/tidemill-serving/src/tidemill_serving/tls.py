"""TLS for gRPC: certificate, key and authorities of clients, as TF Serving's SSLConfig has them."""

import os
import ssl
from pathlib import Path
from typing import Any

from tidemill_serving.errors import StartFailed
from tidemill_serving.versions.config import read_text_message


def read_tls(file: Path) -> ssl.SSLContext:
    """Return the TLS settings of ``--ssl_config_file``: an SSLConfig in text form, which contains PEM texts.

    With ``client_verify``, only clients with a certificate of ``custom_ca`` may connect (mutual TLS).

    Raises:
        StartFailed: The file or a text in it is wrong.
    """
    config = _read(file)
    if not config.server_key or not config.server_cert:
        raise StartFailed(f"{file}: server_key and server_cert are needed: the PEM texts of a key and its certificates")
    if config.client_verify and not config.custom_ca:
        raise StartFailed(
            f"{file}: client_verify needs custom_ca, the PEM text of the authorities of the clients: without it,"
            " anybody with a certificate of a public authority could connect"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    try:
        _load_chain(context, f"{config.server_key}\n{config.server_cert}\n".encode())
        if config.custom_ca:
            context.load_verify_locations(cadata=config.custom_ca)
    except (ssl.SSLError, ValueError) as error:
        raise StartFailed(f"{file}: server_key, server_cert or custom_ca is no fitting PEM text: {error}") from error
    context.verify_mode = ssl.CERT_REQUIRED if config.client_verify else ssl.CERT_NONE
    return context


def _read(file: Path) -> Any:
    try:
        return read_text_message(file, "SSLConfig")
    except StartFailed as error:
        if isinstance(error.__cause__, OSError):
            raise
        text = f"{file} holds no SSLConfig in text form: expected server_key, server_cert, custom_ca and client_verify"
        raise StartFailed(text) from None  # the cause quotes a line of the file, which may be of the key


def _load_chain(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a key and its certificates, which Python reads from files only: here, one in memory."""
    descriptor = os.memfd_create("tls")
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=_no_password)
    finally:
        os.close(descriptor)


def _no_password() -> str:
    raise ValueError("the key is encrypted: give it without a password")
