"""Author asks, operator decides. Requests are checked before anything is made.

What is beyond the settings is cut where that is harmless (time, bytes, memory, CPU, files) and refused where it is not
(image, runtime, network, engine, packages, secrets). A decision shows what was asked, allowed and given, side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

from . import asked as spelling
from . import images
from .compute.packages import package_name
from .config import Limits, SandboxConfig, Settings, variables
from .errors import ImageNotAllowed, PolicyError, SandboxError

_MAXIMA = {
    "memory_mb": "max_memory_mb",
    "cpu_millicores": "max_cpu_millicores",
    "processes": "max_processes",
    "workspace_mb": "max_workspace_mb",
    "max_files": "max_files",
    "max_file_size_bytes": "max_file_size_bytes",
    "open_files": "max_open_files",
}
"""limit -> the setting that bounds it"""
_KINDS = {"pip_packages": "python", "npm_packages": "node"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for. None: nothing was said, and the default holds."""

    mode: str = "compute"
    runtime: str = "python"
    image: str | None = None
    engine: str | None = None
    network: bool = False
    timeout: float | None = None
    max_stdout_bytes: int | None = None
    max_stderr_bytes: int | None = None
    idle_timeout: float | None = None
    max_lifetime: float | None = None
    limits: Limits | None = None
    pip_packages: Sequence[str] = ()
    npm_packages: Sequence[str] = ()
    secrets: Sequence[str] = ()

    @classmethod
    def of(cls, config: SandboxConfig) -> Request:
        """What a prompt file asks for."""
        limits = config.limits.model_dump(exclude_none=True, exclude={"timeout_seconds"})
        return cls(
            mode=config.mode,
            runtime=config.runtime_name,
            image=config.image_name,
            network=config.wants_network,
            timeout=config.timeout,
            max_stdout_bytes=config.max_stdout_bytes,
            limits=Limits(**limits),
            pip_packages=config.pip_packages,
            npm_packages=config.npm_packages,
            secrets=config.secrets,
        )


class Verdict(StrEnum):
    """What became of one thing that could be asked for."""

    DEFAULT = "default"
    """it was not asked for"""
    GRANTED = "granted"
    CLAMPED = "clamped"
    """less is given than was asked for, or than is usual"""
    REFUSED = "refused"


class Row(NamedTuple):
    """One thing that could be asked for: asked, allowed and given, side by side."""

    name: str
    asked: Any
    """None: nothing was said"""
    allowed: Any
    """the highest number or the list of what is allowed; None: no bound"""
    effective: Any
    verdict: Verdict
    setting: str
    """which setting decides"""

    @property
    def variable(self) -> str:
        return variables()[self.setting].name

    def as_tool(self) -> dict[str, Any]:
        return {
            "asked": self.asked,
            "allowed": self.allowed,
            "effective": self.effective,
            "verdict": self.verdict.value,
        }


@dataclass(slots=True)
class Decision:
    """What is given."""

    request: Request
    settings: Settings
    rows: list[Row] = field(default_factory=list)
    refusals: list[SandboxError] = field(default_factory=list)
    limits: Limits = field(default_factory=Limits)
    timeout: float = 0
    max_stdout_bytes: int = 0
    max_stderr_bytes: int = 0
    idle_timeout: float = 0
    max_lifetime: float = 0

    @property
    def clamped(self) -> dict[str, dict[str, Any]]:
        """What was asked for and is less now: name -> asked, allowed, effective. For results and spans."""
        return {
            row.name: row.as_tool() for row in self.rows if row.verdict is Verdict.CLAMPED and row.asked is not None
        }

    def as_tool(self) -> dict[str, Any]:
        return {row.name: row.as_tool() for row in self.rows}

    def attributes(self) -> dict[str, Any]:
        """For spans: `effective.NAME` of everything, and `asked.NAME` and `allowed.NAME` of what was asked for."""
        told: dict[str, Any] = {}
        for row in self.rows:
            columns = {"effective": row.effective}
            if row.asked is not None:
                columns |= {"asked": row.asked, "allowed": row.allowed}
            if row.name in _KINDS:  # by name only: what is no package may be an address with a password in it
                kind = _KINDS[row.name]
                for column in columns.keys() & {"asked", "effective"}:
                    columns[column] = [package_name(kind, one) or "?" for one in columns[column] or ()]
            told |= {f"{column}.{row.name}": value for column, value in columns.items() if value != []}
        return told

    def require(self) -> Decision:
        """Itself.

        Raises:
            ImageNotAllowed: the image, and nothing else, was refused.
            PolicyError: says all that was refused, what is allowed, and which variable changes that.
        """
        if len(self.refusals) == 1:
            raise self.refusals[0]
        if self.refusals:
            raise PolicyError("\n".join(map(str, self.refusals)))
        return self


def clamp(request: Request, settings: Settings) -> Decision:
    """What of the request is given.

    Raises:
        InvalidRequest: it makes no sense: an image without a name …
        PolicyError: the operator does not allow something that cannot be cut.
    """
    return decide(request, settings).require()


def decide(request: Request, settings: Settings) -> Decision:
    """As `clamp`, but a refusal is only noted."""
    made = Decision(request, settings)
    _switches(made)
    _choices(made)
    _amounts(made)
    return made


def timeout(asked: float | None, settings: Settings) -> float:
    """The time of one run or exec. What is no time at all is left for others to refuse."""
    if asked is not None and not math.isfinite(asked):
        return asked
    return min(settings.default_timeout if asked is None else asked, settings.max_timeout)


def engine_allowed(name: str, settings: Settings) -> bool:
    return name == "auto" or "*" in settings.allowed_engines or name in settings.allowed_engines


def _refuse(made: Decision, name: str, setting: str, asked: Any, allowed: Any, text: str) -> None:
    made.rows.append(Row(name, asked, allowed, None, Verdict.REFUSED, setting))
    made.refusals.append(PolicyError(text))


def _switches(made: Decision) -> None:
    settings, request = made.settings, made.request
    if not settings.enabled:
        text = "sandboxes are switched off here; the operator allows them with STATION_SANDBOX_ENABLED=true"
        _refuse(made, "sandbox", "enabled", True, False, text)
    modes = ["compute", "code"] if settings.code_mode_enabled else ["compute"]
    if request.mode in modes:
        made.rows.append(Row("mode", request.mode, modes, request.mode, Verdict.GRANTED, "code_mode_enabled"))
    else:
        text = "code mode is switched off here; the operator allows it with STATION_SANDBOX_CODE_MODE_ENABLED=true"
        _refuse(made, "mode", "code_mode_enabled", request.mode, modes, text)
    if request.network and not settings.allow_network:
        text = (
            "network was asked for and is not allowed here; "
            "the operator allows it with STATION_SANDBOX_ALLOW_NETWORK_DEFAULT=true"
        )
        _refuse(made, "network", "allow_network", True, False, text)
    else:
        verdict = Verdict.GRANTED if request.network else Verdict.DEFAULT
        asked = True if request.network else None
        made.rows.append(Row("network", asked, settings.allow_network, request.network, verdict, "allow_network"))


def _choices(made: Decision) -> None:
    settings, request = made.settings, made.request
    _choose(made, "runtime", "allowed_runtimes", request.runtime, lambda one: one in settings.allowed_runtimes)
    if request.image is None:
        made.rows.append(Row("image", None, list(settings.allowed_images), None, Verdict.DEFAULT, "allowed_images"))
    else:
        _image(made, request.image)
    engine = request.engine or settings.engine
    if request.engine is None and engine_allowed(engine, settings):
        made.rows.append(
            Row("engine", None, list(settings.allowed_engines), engine, Verdict.DEFAULT, "allowed_engines")
        )
    else:
        _choose(made, "engine", "allowed_engines", engine, lambda one: engine_allowed(one, settings))
    for kind, packages in (("pip", request.pip_packages), ("npm", request.npm_packages)):
        _each(made, f"{kind}_packages", "allowed_packages", packages, partial(_package, kind, settings))
    _each(made, "secrets", "allowed_secrets", request.secrets, lambda one: one in settings.allowed_secrets)
    made.rows.append(Row("profile", None, settings.profile, settings.profile, Verdict.DEFAULT, "profile"))


def _choose(made: Decision, name: str, setting: str, asked: str, allowed: Callable[[str], bool]) -> None:
    listed = list(getattr(made.settings, setting))
    if allowed(asked):
        made.rows.append(Row(name, asked, listed, asked, Verdict.GRANTED, setting))
    else:
        _refuse(made, name, setting, asked, listed, _not_allowed(name, [asked], setting, listed))


def _each(made: Decision, name: str, setting: str, asked: Sequence[str], allowed: Callable[[str], bool]) -> None:
    listed = list(getattr(made.settings, setting))
    if not asked:
        made.rows.append(Row(name, None, listed, [], Verdict.DEFAULT, setting))
    elif refused := [one for one in asked if not allowed(one)]:
        _refuse(made, name, setting, list(asked), listed, _not_allowed(name, refused, setting, listed))
    else:
        made.rows.append(Row(name, list(asked), listed, list(asked), Verdict.GRANTED, setting))


def _not_allowed(name: str, refused: Sequence[str], setting: str, listed: Sequence[str]) -> str:
    what = ", ".join(map(spelling.short, refused))
    return (
        f"{name}: {what} {'is' if len(refused) == 1 else 'are'} not allowed here; allowed are "
        f"{', '.join(listed) or 'none'} (the operator sets {variables()[setting].name})"
    )


def _image(made: Decision, image: str) -> None:
    listed = list(made.settings.allowed_images)
    try:
        images.allow(image, made.settings.allowed_images)
    except ImageNotAllowed as error:
        made.rows.append(Row("image", image, listed, None, Verdict.REFUSED, "allowed_images"))
        made.refusals.append(error)
    else:
        made.rows.append(Row("image", image, listed, image, Verdict.GRANTED, "allowed_images"))


def _package(kind: str, settings: Settings, package: str) -> bool:
    """Whether a pattern covers it: `pandas` and `types-*` in both registries, `npm:left-*` in one."""
    name = package_name("python" if kind == "pip" else "node", package)
    return name is not None and any(
        fnmatchcase(name, pattern.removeprefix(f"{kind}:")) or fnmatchcase(f"{kind}:{name}", pattern)
        for pattern in settings.allowed_packages
    )


def _amounts(made: Decision) -> None:
    settings, request = made.settings, made.request
    made.timeout = timeout(request.timeout, settings)
    _amount(made, "timeout_seconds", "max_timeout", request.timeout, settings.default_timeout, made.timeout)
    for name in ("max_stdout_bytes", "max_stderr_bytes", "idle_timeout", "max_lifetime"):
        asked, most = getattr(request, name), getattr(settings, name)
        given = most if asked is None or asked > most else asked
        setattr(made, name, given)
        if request.mode == "code" or name.endswith("bytes"):
            _amount(made, name, name, asked, most, given)
    limits = request.limits or Limits()
    cut: dict[str, int] = {}
    for name, setting in _MAXIMA.items():
        wanted, most = getattr(limits, name), getattr(settings, setting)
        given = _within(wanted, most, setting in settings.model_fields_set)
        if given != wanted:
            cut[name] = given
        asked = wanted if name in limits.model_fields_set else None
        _amount(made, name, setting, asked, wanted, given)
    made.limits = limits.model_copy(update=cut) if cut else limits


def _within(wanted: int | None, most: int | None, set_by_operator: bool) -> Any:
    """The lower of the two. No limit at all, which only code can ask for and no prompt file, is a decision of who wrote
    that code: it yields to a maximum that the operator has set, and not to the one that we think fit for prompt files.
    """
    if most is None or (wanted is None and not set_by_operator):
        return wanted
    return most if wanted is None else min(wanted, most)


def _amount(made: Decision, name: str, setting: str, asked: Any, usual: Any, given: Any) -> None:
    if given != (usual if asked is None else asked):
        verdict = Verdict.CLAMPED
    else:
        verdict = Verdict.DEFAULT if asked is None else Verdict.GRANTED
    made.rows.append(Row(name, asked, getattr(made.settings, setting), given, verdict, setting))
