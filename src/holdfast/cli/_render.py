"""Tables and amounts for people. Everything that a sandbox could have named is made printable here."""

from __future__ import annotations

from collections.abc import Sequence

import click

from .. import errors


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns, aligned; the header is bold on a terminal."""
    clean = [[errors.printable(cell) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(headers, *clean, strict=True)]
    click.secho(_line(headers, widths), bold=True)
    for row in clean:
        click.echo(_line(row, widths))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values, one pair to a line."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {errors.printable(value)}")


def size(count: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def duration(seconds: float) -> str:
    """A span of time as people read it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def named(values: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def setting(value: object) -> str:
    """A value of a setting or of a request, in one cell."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
