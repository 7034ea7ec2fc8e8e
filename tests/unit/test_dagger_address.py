"""Where the Dagger engine is: every form that is taken, and one clear word for each mistake."""

from __future__ import annotations

import pytest

from holdfast import errors
from holdfast.config import settings
from holdfast.engines.dagger.address import Address, address


def found(mode: str | None, host: str | None) -> Address | None:
    environ = {"STATION_SANDBOX_ENGINE_MODE": mode, "DAGGER_HOST": host}
    return address(settings({name: value for name, value in environ.items() if value is not None}))


@pytest.mark.parametrize(
    ("mode", "host"),
    [
        ("docker_socket", None),
        ("docker_socket", "container://engine"),
        ("docker_socket", "image://engine:1"),
        ("docker_socket", "docker-container://engine"),
        ("sidecar", "tcp://dagger-engine:8080"),
        ("sidecar", "unix:///run/dagger/engine.sock"),
        ("sidecar", "kube-pod://engine-0?namespace=ci"),
        ("remote", "tcp://engine:8080"),
        ("remote", "tls://engine:8443"),
        ("remote", "ssh://me@engine"),
        ("remote", "dagger-cloud://default"),
        (None, "unix:///run/dagger/engine.sock"),
        (None, "container+podman://engine"),
        (None, "tcp://[::1]:8080"),
    ],
)
def test_what_is_taken(mode: str | None, host: str | None) -> None:
    assert found(mode, host) == Address(host, mode)


def test_nothing_is_configured() -> None:
    assert found(None, None) is None


@pytest.mark.parametrize(
    ("mode", "host", "says"),
    [
        ("sidecar", None, "needs DAGGER_HOST, such as tcp://"),
        ("remote", None, "needs DAGGER_HOST, such as tls://"),
        ("docker_socket", "tcp://engine:8080", "contradict each other: tcp:// is for sidecar, remote"),
        ("sidecar", "tls://engine:8080", "contradict each other: tls:// is for remote"),
        ("remote", "unix:///run/engine.sock", "contradict each other: unix:// is for sidecar"),
        (None, "dagger-engine:8080", "needs a scheme in front, such as tcp://dagger-engine:8080"),
        (None, "http://engine:8080", "say tcp://engine:8080"),
        (None, "ftp://engine", "ftp is not known"),
        (None, "tcp://engine", "needs a host and a port"),
        (None, "tcp://:8080", "needs a host and a port"),
        (None, "tcp://engine:port", "needs a host and a port"),
        (None, "unix://run/engine.sock", "a socket's path is absolute"),
        (None, "container://", "names no engine"),
    ],
)
def test_each_mistake_has_its_word(mode: str | None, host: str | None, says: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        found(mode, host)
    assert says in str(caught.value)


def test_an_unknown_mode() -> None:
    with pytest.raises(errors.ConfigError, match="STATION_SANDBOX_ENGINE_MODE"):
        found("socket", None)


def test_an_engine_that_has_to_be_made_takes_its_time() -> None:
    assert Address(None, "docker_socket").starts_one
    assert Address("image://engine:1", None).starts_one
    assert Address("docker-image://engine:1", None).starts_one
    assert not Address("container://engine", None).starts_one
    assert not Address("tcp://engine:1", None).starts_one
