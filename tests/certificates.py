"""Certificates for tests of TLS: of a server on loopback, of a client, and of one that the server does not know."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path


def make(folder: Path) -> Path:
    """`good`, `unknown` (of another CA) and `wrong` (trusts another CA): each with ca.pem, cert.pem and key.pem."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=60)

    for ca in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                "-subj", f"/CN={ca}", "-keyout", f"{ca}-key.pem", "-out", f"{ca}.pem")  # fmt: skip
    for name, ca, extra in (
        ("server", "ca", "subjectAltName=IP:127.0.0.1"),
        ("client", "ca", "extendedKeyUsage=clientAuth"),
        ("stranger", "other", "extendedKeyUsage=clientAuth"),
    ):
        (folder / f"{name}.ext").write_text(extra)
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-subj", f"/CN={name}", "-keyout", f"{name}-key.pem", "-out", f"{name}.csr")  # fmt: skip
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}-key.pem", "-CAcreateserial",
                "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem")  # fmt: skip
    for kind, name, ca in (("good", "client", "ca"), ("unknown", "stranger", "ca"), ("wrong", "client", "other")):
        (folder / kind).mkdir()
        for target, source in (("ca.pem", ca), ("cert.pem", name), ("key.pem", f"{name}-key")):
            (folder / kind / target).write_bytes((folder / f"{source}.pem").read_bytes())
    return folder


def server(folder: Path) -> ssl.SSLContext:
    """A server that takes nobody without a certificate of its CA."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "server.pem", folder / "server-key.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context
