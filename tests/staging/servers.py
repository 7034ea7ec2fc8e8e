"""NATS servers of a test's own, with logins and TLS; and the keys, tokens and certificates for them."""

from __future__ import annotations

import base64
import binascii
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from tests.testbed import require, without

_PATIENCE = 20.0


@contextmanager
def server(config: str, scheme: str = "nats") -> Iterator[str]:
    """A server with JetStream and this configuration; its address."""
    require("nats")
    program = shutil.which("nats-server")
    if program is None:
        without("a server of one's own needs nats-server")
    folder = Path(tempfile.mkdtemp(prefix="hf-nats-"))
    (folder / "conf").write_text(f'jetstream {{ store_dir: "{folder}/store" }}\n{config}\n')
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "-c", f"{folder}/conf", "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(folder)],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"{scheme}://127.0.0.1:{_port(folder, process)}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def _port(folder: Path, process: subprocess.Popen[bytes]) -> int:
    end = time.monotonic() + _PATIENCE
    while True:
        for found in folder.glob("*.ports"):
            text = found.read_text()
            if text.endswith("}"):
                return int(json.loads(text)["nats"][0].rpartition(":")[2])
        assert process.poll() is None and time.monotonic() < end, (folder / "log").read_text()[-2000:]
        time.sleep(0.02)


class Nkey:
    """A key pair as NATS writes it; `kind` is U for a user, A for an account, O for an operator."""

    def __init__(self, kind: str) -> None:
        self._key = Ed25519PrivateKey.generate()
        number = "ABCDEFGHIJKLMNOPQRSTUVWXYZ".index(kind) << 3
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public = _encoded(bytes([number]) + public)
        raw = self._key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        self.seed = _encoded(bytes([18 << 3 | number >> 5, (number & 31) << 3]) + raw)

    def signed(self, subject: str, claims: dict[str, Any]) -> str:
        """A JWT of the kind that NATS has."""
        about = {"jti": "x", "iat": int(time.time()), "iss": self.public, "sub": subject, "name": "x", "nats": claims}
        text = ".".join(_part(json.dumps(one).encode()) for one in ({"typ": "JWT", "alg": "ed25519-nkey"}, about))
        return f"{text}.{_part(self._key.sign(text.encode()))}"


def _encoded(data: bytes) -> str:
    return base64.b32encode(data + binascii.crc_hqx(data, 0).to_bytes(2, "little")).rstrip(b"=").decode()


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decentralised() -> tuple[str, str]:
    """The configuration of a server that knows an operator only, and the credentials file of a user."""
    operator, account, system, user = Nkey("O"), Nkey("A"), Nkey("A"), Nkey("U")
    without = -1
    counts = ("subs", "conn", "leaf", "imports", "exports", "data", "payload", "mem_storage", "disk_storage", "streams")
    limits = {**dict.fromkeys((*counts, "consumer"), without), "wildcards": True}
    tokens = {
        "operator": operator.signed(operator.public, {"type": "operator", "version": 2}),
        "account": operator.signed(account.public, {"type": "account", "version": 2, "limits": limits}),
        "system": operator.signed(system.public, {"type": "account", "version": 2}),
    }
    rights = {"pub": {}, "sub": {}, "subs": without, "data": without, "payload": without}
    token = account.signed(user.public, {"type": "user", "version": 2, **rights})
    config = (
        f"operator: {tokens['operator']}\nsystem_account: {system.public}\nresolver: MEMORY\n"
        f"resolver_preload: {{ {account.public}: {tokens['account']}, {system.public}: {tokens['system']} }}"
    )
    return config, credentials(token, user.seed)


def credentials(token: str, seed: str) -> str:
    return (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"************************* IMPORTANT *************************\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


class Authority:
    """Issues certificates for 127.0.0.1, into a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _named(name)
        self.certificate = self._write(f"{name}.pem", self._certificate(subject, self._key, issuer=subject))

    def issue(self, name: str) -> tuple[Path, Path]:
        """A certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        certificate = self._certificate(_named(name), key, issuer=_named(self._name))
        return self._write(f"{name}.pem", certificate), self._write(f"{name}.key", private)

    def _certificate(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, issuer: x509.Name) -> bytes:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=subject == issuer, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def _write(self, name: str, content: bytes) -> Path:
        (self._folder / name).write_bytes(content)
        return self._folder / name


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
