"""Logins for NATS: which one the operator has configured, in the form that nats-py takes."""

from __future__ import annotations

import base64
import binascii
import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..config import Settings
from ..errors import ConfigError, Mistake, StagingUnavailable, printable

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\s*([A-Za-z0-9_.+/=-]+)\s*-+END [A-Z0-9 ]+-+")
_SEED = re.compile(rb"\bS[A-Z2-7]{57}\b")
_SEED_KIND, _USER_KIND = 18 << 3, 20 << 3
_MAX_BYTES = 64 << 10


def login(settings: Settings, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Options of nats-py's `connect`. Two logins at once are a mistake, since only one of them would be used.

    Raises:
        ConfigError: two logins, half of one, or a file that does not hold what it should.
    """
    found = os.environ if environ is None else environ
    password, token = found.get("HOLDFAST_NATS_PASSWORD"), found.get("HOLDFAST_NATS_TOKEN")
    given = {
        "HOLDFAST_NATS_USER": settings.nats_user,
        "HOLDFAST_NATS_TOKEN": token,
        "HOLDFAST_NATS_CREDS": settings.nats_creds_file,
        "HOLDFAST_NATS_NKEY": settings.nats_nkey_file,
    }
    names = [name for name, value in given.items() if value]
    if len(names) > 1:
        raise ConfigError(Mistake(f"is one login, and {' and '.join(names[1:])} another; keep one", key=names[0]))
    if bool(settings.nats_user) != bool(password):
        missing, there = ("PASSWORD", "USER") if settings.nats_user else ("USER", "PASSWORD")
        raise ConfigError(Mistake(f"is needed, since HOLDFAST_NATS_{there} is set", key=f"HOLDFAST_NATS_{missing}"))
    if settings.nats_user:
        return {"user": settings.nats_user, "password": password}
    if token:
        return {"token": token}
    if settings.nats_creds_file:
        return _by_credentials(settings.nats_creds_file)
    return _by_nkey(settings.nats_nkey_file) if settings.nats_nkey_file else {}


def tls(settings: Settings) -> ssl.SSLContext | None:
    """What the server's certificate is checked against, and what is shown to it.

    None: nats-py's default, which is the trust of this machine, where the server wants TLS.

    Raises:
        ConfigError: a file is missing or holds something else.
    """
    ca, certificate, key = settings.nats_ca_file, settings.nats_cert_file, settings.nats_key_file
    if bool(certificate) != bool(key):
        missing, there = ("KEY", "CERT") if certificate else ("CERT", "KEY")
        raise ConfigError(Mistake(f"is needed, since HOLDFAST_NATS_{there} is set", key=f"HOLDFAST_NATS_{missing}"))
    if not (ca or certificate):
        return None
    name = "HOLDFAST_NATS_CA"
    try:
        context = ssl.create_default_context(cafile=ca)
        name = "HOLDFAST_NATS_CERT"
        if certificate:
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        why = printable(error.strerror or str(error))
        raise ConfigError(Mistake(f"cannot be used: {why}", key=name)) from error
    return context


def _by_credentials(path: str) -> dict[str, Any]:
    blocks = dict(_BLOCK.findall(_content(path, "HOLDFAST_NATS_CREDS")))
    jwt, seed = blocks.get(b"NATS USER JWT"), blocks.get(b"USER NKEY SEED")
    if jwt is None or seed is None:
        raise ConfigError(Mistake("holds no user JWT and seed", printable(path), key="HOLDFAST_NATS_CREDS"))
    signer = _Signer(seed, path, "HOLDFAST_NATS_CREDS")
    return {"signature_cb": signer.sign, "user_jwt_cb": lambda: jwt}


def _by_nkey(path: str) -> dict[str, Any]:
    seed = _SEED.search(_content(path, "HOLDFAST_NATS_NKEY"))
    if seed is None:
        raise ConfigError(Mistake("holds no seed of an nkey", printable(path), key="HOLDFAST_NATS_NKEY"))
    signer = _Signer(seed[0], path, "HOLDFAST_NATS_NKEY")
    return {"signature_cb": signer.sign, "public_nkey": signer.public}


def _content(path: str, key: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MAX_BYTES)
    except OSError as error:
        raise ConfigError(Mistake(f"cannot be read: {error.strerror}", printable(path), key=key)) from error


class _Signer:
    """Signs what the server asks for with the seed of a user. nats-py would need another package for that."""

    def __init__(self, seed: bytes, path: str, key: str) -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
            from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
        except ImportError as error:
            raise StagingUnavailable(
                "credentials files and nkeys need the package cryptography; install holdfast[nats]"
            ) from error
        try:
            raw = base64.b32decode(seed + b"=" * (-len(seed) % 8))
        except binascii.Error:
            raw = b""
        # Two bytes say what it is, in five bits each; the key; a checksum.
        if (
            len(raw) != 36
            or raw[0] & 0xF8 != _SEED_KIND
            or (raw[0] & 7) << 5 | raw[1] >> 3 != _USER_KIND
            or _checksum(raw[:-2]) != raw[-2:]
        ):
            raise ConfigError(Mistake("the seed in it is not that of a user", printable(path), key=key))
        self._key = Ed25519PrivateKey.from_private_bytes(raw[2:34])
        public = bytes([_USER_KIND]) + self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public = base64.b32encode(public + _checksum(public)).rstrip(b"=").decode()

    def sign(self, nonce: str) -> bytes:
        return base64.b64encode(self._key.sign(nonce.encode()))


def _checksum(data: bytes) -> bytes:
    """CRC-16/XMODEM, the lower byte first."""
    return binascii.crc_hqx(data, 0).to_bytes(2, "little")
