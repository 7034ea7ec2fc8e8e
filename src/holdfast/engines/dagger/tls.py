"""A first word to an engine behind TLS: the CLI tries again for half a minute, and does not say what is wrong."""

from __future__ import annotations

import socket
import ssl
from urllib.parse import SplitResult, parse_qs

from ...errors import printable

_FIRST_WORDS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""as every client of HTTP/2 begins: the preface, and settings without a wish"""
_SETTINGS = 4
"""the kind of frame that a server begins with; its fourth byte"""


def problem(address: SplitResult, seconds: float) -> str | None:
    """Why the CLI will not get through with these certificates; None: an engine's server answers. Blocks for a moment.

    Raises:
        OSError: nobody is there.
    """
    given = {name: values[-1] for name, values in parse_qs(address.query).items()}
    certificate, key = given.get("cert_path"), given.get("key_path")
    if bool(certificate) != bool(key):
        return "cert_path and key_path belong together: give both, or none"
    try:
        context = ssl.create_default_context(cafile=given.get("ca_path"))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as strict as the CLI, which is written in Go
        if certificate:
            context.load_cert_chain(certificate, key)
    except OSError as error:
        named = ", ".join(filter(None, (given.get("ca_path"), certificate, key)))
        return f"the certificates cannot be used: {_words(error)} ({named})"
    answer = b""
    with socket.create_connection((address.hostname or "", address.port or 0), seconds) as raw:
        try:
            with context.wrap_socket(raw, server_hostname=address.hostname) as stream:
                stream.sendall(_FIRST_WORDS)
                while len(answer) < _SETTINGS and (piece := stream.recv(64)):
                    answer += piece
        except ssl.SSLCertVerificationError as error:
            return f"its certificate is not trusted: {error.verify_message}; ca_path names who signed it"
        except OSError as error:  # with TLS 1.3, who does not want a client says so by hanging up
            if isinstance(error, TimeoutError):
                return f"it does not answer within {seconds:.0f} s"
            return f"it hangs up ({_words(error)}): does it know the certificate in cert_path?"
    if not answer:
        return "it hangs up: does it know the certificate in cert_path?"
    if answer[3:4] != bytes((_SETTINGS,)):
        return (
            "it does not speak as the Dagger CLI does, which is HTTP/2 without a word about it in the TLS handshake; "
            "an engine's own --tlscert does not either: put a TLS proxy for tcp, such as stunnel, before its socket"
        )
    return None


def _words(error: OSError) -> str:
    return printable(getattr(error, "reason", None) or error.strerror or str(error))
