"""Where settings come from: a variable of the environment, else a key of the operator's TOML file, else the default.

The file is the first that there is of HOLDFAST_CONFIG, holdfast/config.toml of this user's configuration folder, and
/etc/holdfast/config.toml. Its keys are the names of the settings; there are no tables in it.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import ValidationError

from . import mistakes, runtimes
from .asked import short
from .config import OTHER_VARIABLES, Settings, variables
from .errors import ConfigError, Mistake, printable

SYSTEM_FILE = "/etc/holdfast/config.toml"
_MAX_BYTES = 1 << 20
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")
_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_PREFIXES = ("STATION_SANDBOX_", "SANDBOX_SESSION_", "HOLDFAST_")
_KNOWN_ELSEWHERE = ("HOLDFAST_TESTBED",)
_Stamp = tuple[tuple[str, int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the value of a setting comes from."""

    variable: str | None = None
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        if self.variable:
            return self.variable
        return f"{self.file}:{self.line}" if self.file and self.line else self.file or "default"


@dataclass(frozen=True, slots=True)
class Sources:
    """The settings with their origins."""

    settings: Settings
    origins: dict[str, Origin]
    """only of those that are not the default"""
    file: str | None
    notes: tuple[str, ...]
    """variables that look like ours and are not"""
    _watched: tuple[str, ...] = ()
    _stamp: _Stamp = ()

    def current(self) -> bool:
        """Whether the file is the one that was read."""
        return _stamp(self._watched) == self._stamp

    def origin(self, name: str) -> Origin:
        return self.origins.get(name, Origin())


def read(environ: Mapping[str, str]) -> Sources:
    """Read all settings.

    Raises:
        ConfigError: all that is wrong in them.
    """
    paths = _paths(environ)
    stamp = _stamp(paths)
    wrong: list[Mistake] = []
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    file = _from_file(environ, paths, values, origins, wrong)
    _from_environment(environ, values, origins, wrong)
    made: Settings | None = None
    try:
        made = Settings.model_validate(values)
    except ValidationError as error:
        for one in error.errors():
            name = str(one["loc"][0])
            text = mistakes.explain(one)
            if one["type"] == "float_type":
                text = (
                    f"must be a number of seconds, or a time such as 90s, 30m or 4h, not {mistakes.shown(one['input'])}"
                )
            wrong.append(_mistake(origins[name], name, text))
    wrong += _known_names(values, origins)
    if made is None or wrong:
        raise ConfigError(*wrong)
    return Sources(made, origins, file, tuple(_strangers(environ)), paths, stamp)


def _paths(environ: Mapping[str, str]) -> tuple[str, ...]:
    if named := environ.get("HOLDFAST_CONFIG"):
        return (named,)
    home = environ.get("XDG_CONFIG_HOME") or (f"{environ['HOME']}/.config" if environ.get("HOME") else None)
    return (*([f"{home}/holdfast/config.toml"] if home else []), SYSTEM_FILE)


def _stamp(paths: tuple[str, ...]) -> _Stamp:
    found: list[tuple[str, int, int, int] | None] = []
    for path in paths:
        try:
            state = os.stat(path)  # noqa: PTH116  on the path of every run
        except OSError:
            found.append(None)
        else:
            found.append((path, state.st_mtime_ns, state.st_size, state.st_ino))
    return tuple(found)


def _mistake(origin: Origin, name: str, text: str) -> Mistake:
    if origin.variable:
        return Mistake(text, key=origin.variable)
    return Mistake(text, origin.file, origin.line, key=name)


def _from_file(
    environ: Mapping[str, str],
    paths: tuple[str, ...],
    values: dict[str, Any],
    origins: dict[str, Origin],
    wrong: list[Mistake],
) -> str | None:
    """Fill in what the first file there is says. Returns its path."""
    for path in paths:
        shown = printable(path)
        try:
            text = _content(path)
            if text is None:
                continue
            found = tomllib.loads(text)
        except OSError as error:
            wrong.append(Mistake(f"cannot be read: {error.strerror}", shown))
        except UnicodeDecodeError as error:
            wrong.append(Mistake(f"is not UTF-8 (byte {error.start})", shown))
        except tomllib.TOMLDecodeError as error:
            what, _, place = str(error).partition(" (at ")
            line, column = (*map(int, re.findall(r"\d+", place)), None, None)[:2]
            wrong.append(Mistake(f"is not TOML: {printable(what)}", shown, line, column))
        else:
            for name, value in found.items():
                origin = Origin(file=shown, line=_line(text, name))
                if name in Settings.model_fields:
                    origins[name], values[name] = origin, _from_toml(name, value)
                else:
                    near = mistakes.suggestion(name, Settings.model_fields)
                    wrong.append(_mistake(origin, printable(name), f"there is no such setting{near}"))
        return shown
    if named := environ.get("HOLDFAST_CONFIG"):
        wrong.append(Mistake(f"there is no file {printable(named)}", key="HOLDFAST_CONFIG"))
    return None


def _content(path: str) -> str | None:
    """None: there is no such file."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(content) > _MAX_BYTES:
        raise OSError(0, f"it is larger than {_MAX_BYTES} bytes")
    return content.decode()


def _line(text: str, name: str) -> int | None:
    key = re.escape(name)
    found = re.search(rf"""^[ \t]*["']?{key}["']?[ \t]*[=.]|^[ \t]*\[+{key}\b""", text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else None


def _from_toml(name: str, value: Any) -> Any:
    """TOML has no word for nothing, and no durations: both are written as text."""
    if isinstance(value, str):
        if value == "none" and _may_be_none(name):
            return None
        if _kind(name) is float:
            return _duration(value, value)
    return value


def _from_environment(
    environ: Mapping[str, str], values: dict[str, Any], origins: dict[str, Origin], wrong: list[Mistake]
) -> None:
    for name, env in variables().items():
        given = [variable for variable in env.names if environ.get(variable)]
        if not given:
            continue
        first = given[0]
        if any(environ[other] != environ[first] for other in given if not other.startswith("_")):
            # A name with _ is another program's own, and yields to ours.
            wrong.append(Mistake(f"and {given[1]} say different things; keep one of them", key=first))
        origins[name] = Origin(variable=first)
        values[name] = _from_text(name, environ[first].strip())


def _from_text(name: str, text: str) -> Any:
    """What a variable says; a text that does not fit is left for the model to refuse."""
    kind = _kind(name)
    if text.lower() == "none" and (_may_be_none(name) or kind is tuple):
        return () if kind is tuple else None
    if kind is tuple:
        return tuple(filter(None, map(str.strip, text.split(","))))
    if kind is bool:
        return _BOOLEANS.get(text.lower(), text)
    if kind is int and re.fullmatch(r"[-+]?\d{1,40}", text, re.ASCII):
        return int(text)
    return _duration(text, text) if kind is float else text


def _duration(text: str, otherwise: Any) -> Any:
    """Seconds: `90`, `1.5`, `30m`, `1h30m`, `2d`."""
    if _NUMBER.fullmatch(text) and len(text) <= 40:
        return float(text)
    found = _DURATION.fullmatch(text)
    if not text or not found or len(text) > 40:
        return otherwise
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds


def _kind(name: str) -> type:
    """tuple, bool, int, float or str."""
    option: Any = Settings.model_fields[name].annotation
    if _may_be_none(name):
        option = next(one for one in get_args(option) if one is not type(None))
    while hasattr(option, "__metadata__"):  # Annotated
        option = get_args(option)[0]
    return tuple if get_origin(option) is tuple else option if isinstance(option, type) else str


def _may_be_none(name: str) -> bool:
    return type(None) in get_args(Settings.model_fields[name].annotation)


def _known_names(values: dict[str, Any], origins: dict[str, Origin]) -> list[Mistake]:
    """Names of engines and runtimes that are not there."""
    from .engines import ENGINES

    checks = {"engine": ("auto", *ENGINES), "allowed_engines": ("*", *ENGINES), "allowed_runtimes": runtimes.RUNTIMES}
    wrong: list[Mistake] = []
    for name, known in checks.items():
        value = values.get(name, ())
        for one in (value,) if isinstance(value, str) else value:
            if isinstance(one, str) and one not in known:
                text = f"there is no {name.removeprefix('allowed_').removesuffix('s')} {short(one)}"
                wrong.append(_mistake(origins[name], name, text + mistakes.suggestion(one, known)))
    return wrong


def _strangers(environ: Mapping[str, str]) -> list[str]:
    known = {name for env in variables().values() for name in env.names} | set(OTHER_VARIABLES)
    told: list[str] = []
    for name in sorted(environ):
        if name.startswith(_PREFIXES) and name not in known and not name.startswith(_KNOWN_ELSEWHERE):
            near = get_close_matches(name, known, 1)
            told.append(
                f"{printable(name)} is set, and there is no such variable"
                + (f"; did you mean {near[0]}?" if near else "")
            )
    return told
