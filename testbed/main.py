"""The three commands: up, down, status."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, cast

from testbed import settings
from testbed.cache import Cache, default_root
from testbed.core import Report, TestbedError
from testbed.machine import CommandError, Machine
from testbed.parts import PARTS, Bed, Part, with_needs
from testbed.settings import Section, Settings

NAMES = [part.name for part in PARTS]

_UP = """brings the testbed up: what is there is used, the rest is made; .testbed.json tells where it is

examples:
  testbed/up                      everything; seconds if it is up, 10 minutes on a new machine
  testbed/up bubblewrap nats      only these, and what they need
  HOLDFAST_TESTBED_NATS_PORT=4222 testbed/up nats

environment:
  HOLDFAST_TESTBED_CACHE                        where results are kept (~/.cache/holdfast-testbed)
  HOLDFAST_TESTBED_{REGISTRY,DAGGER,NATS}_PORT  a port on loopback instead of the usual one
  DOCKER_HOST                                   a Docker daemon that is already there
"""
_DOWN = """stops what testbed/up started, and nothing else: a Docker daemon that was there before goes on

examples:
  testbed/down            the next testbed/up takes seconds
  testbed/down dagger     only this one, and what stands on it
  testbed/down --purge    also deletes caches, containers, volumes and images that the testbed made
"""
_STATUS = """shows each part with its state, version and address; the exit status is 0 if all are up

examples:
  testbed/status
  testbed/status --json
"""


def up(argv: Sequence[str] | None = None) -> int:
    names = with_needs(_parse("up", _UP, argv).parts)
    bed = _bed(Report())
    started = time.monotonic()
    try:
        settings.require_writable()
        with _terminable(), bed.cache.locked(bed.report):
            missing = _bring_up(bed, names)
            found = _write_settings(bed, missing)
    except TestbedError as error:
        print(f"testbed/up: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("testbed/up: interrupted; what was finished is kept, call it again to go on", file=sys.stderr)
        return 130
    took = f"{time.monotonic() - started:.1f} s"
    bed.report.line("testbed", f"up: {', '.join(name for name in NAMES if name in found)}", took)
    for name, reason in missing.items():
        print(f"testbed/up: {name} is missing. {reason}", file=sys.stderr)
    return 1 if missing else 0


def _bring_up(bed: Bed, names: list[str]) -> dict[str, str]:
    """Brings the parts up, beside each other where they can; returns why those are missing that are."""
    parts = [part(bed) for part in PARTS if part.name in names]
    # Threads wait for each other, so each part needs its own two; only for earlier ones, so nothing locks up.
    pool = ThreadPoolExecutor(2 * len(parts))
    running: dict[str, Future[None]] = {}

    def one(part: Part[Any]) -> None:
        try:
            part.look()
        except TestbedError:
            prepared = pool.submit(part.prepare)
            for need in part.needs:
                if isinstance(running[need].exception(), TestbedError):
                    raise TestbedError(f"{need} is missing", f"see what testbed/up says about {need}") from None
            prepared.result()
            part.bring_up()
            part.look()

    for part in parts:
        running[part.name] = pool.submit(one, part)
    missing: dict[str, str] = {}
    try:
        for name, future in running.items():
            error = future.exception()
            if isinstance(error, (TestbedError, CommandError)):
                missing[name] = str(error)
            elif error is not None:
                raise error
        bed.machine.kill_children()  # a preparation whose part has failed already
    except BaseException:
        bed.machine.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return missing


def _write_settings(bed: Bed, missing: dict[str, str]) -> dict[str, Section]:
    found, _ = _look(bed)
    settings.write(cast(Settings, {**found, "missing": missing}))
    return found


def _look(bed: Bed) -> tuple[dict[str, Section], dict[str, str]]:
    """What is up now, and why the rest is not."""

    def one(part: Part[Any]) -> Section | TestbedError:
        try:
            return cast(Section, part.look())
        except TestbedError as error:
            return error

    parts = [part(bed) for part in PARTS]
    with ThreadPoolExecutor(len(parts)) as pool:
        answers = dict(zip(NAMES, pool.map(one, parts), strict=True))
    found = {name: answer for name, answer in answers.items() if not isinstance(answer, TestbedError)}
    missing = {name: str(answer) for name, answer in answers.items() if isinstance(answer, TestbedError)}
    for part in parts:
        if part.name in missing and "docker" in missing and "docker" in part.needs:
            missing[part.name] = "It needs docker, which is not up."
    return found, missing


def down(argv: Sequence[str] | None = None) -> int:
    arguments = _parse("down", _DOWN, argv)
    bed = _bed(Report())
    try:
        settings.require_writable()
        with bed.cache.locked(bed.report):
            _take_down(bed, arguments.parts, purge=arguments.purge)
    except TestbedError as error:
        print(f"testbed/down: {error}", file=sys.stderr)
        return 1
    return 0


def _take_down(bed: Bed, names: list[str], *, purge: bool) -> None:
    wanted = set(names or NAMES)
    wanted |= {part.name for part in PARTS if wanted.intersection(with_needs([part.name])) and part.name not in wanted}
    found, _ = _look(bed)
    for part in reversed([part(bed) for part in PARTS if part.name in wanted]):
        if purge and (not part.needs or "docker" in found):
            part.purge()
        if not part.needs or "docker" in found:
            part.stop()
    still, _ = _look(bed)
    if still and names:
        settings.write(cast(Settings, {**still, "missing": {}}))
    else:
        settings.remove()
    if purge and not names:
        bed.cache.purge()


def status(argv: Sequence[str] | None = None) -> int:
    arguments = _parse("status", _STATUS, argv)
    bed = _bed(Report())
    found, missing = _look(bed)
    if arguments.json:
        print(json.dumps({**found, "missing": missing}, indent=2))
    else:
        rows = [("part", "state", "version", "address")]
        for part in (part(bed) for part in PARTS):
            if part.name in found:
                section = found[part.name]
                rows.append((part.name, "up", part.version(section), part.address(section)))
            else:
                rows.append((part.name, "down", "", missing[part.name]))
        for name, state, version, address in rows:
            print(f"{name:<11} {state:<6} {version:<22} {address}")
    return 1 if missing else 0


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM acts like Ctrl-C: what is half done is undone on the way out."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _bed(report: Report) -> Bed:
    machine = Machine()
    return Bed(machine, Cache(default_root(machine.environ)), report)


def _parse(command: str, text: str, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"testbed/{command}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if command == "status":
        parser.add_argument("--json", action="store_true", help="as JSON, in the shape of .testbed.json")
    else:
        parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(NAMES))
    if command == "down":
        parser.add_argument("--purge", action="store_true", help="also delete what the testbed made")
    arguments = parser.parse_args(argv)
    unknown = sorted(set(getattr(arguments, "parts", [])) - set(NAMES))
    if unknown:
        parser.error(f"no part is called {unknown[0]}: there are {', '.join(NAMES)}")
    return arguments
