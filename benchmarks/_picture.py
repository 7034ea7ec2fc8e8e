"""Draws an answer as an SVG: a panel for each case, contenders under each other or as lines over a size.

The picture carries its own colours for light and for dark, and labels everything directly: no legend to look up.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from _report import Answer, Measured

WIDTH = 860
LEFT, RIGHT = 226, 580
"""of the axis; names stand before it, numbers behind it"""
LINE, HEAD = 24, 58
LOG_FROM = 12
"""where the largest is so many times the smallest, the axis is logarithmic"""
ON_DOCKER = "holdfast, docker"
PLOT_RIGHT, PLOT_HEIGHT = 590, 230

LIGHT = {
    "ground": "#ffffff",
    "text": "#1f2328",
    "soft": "#59636e",
    "grid": "#e4e8ec",
    "ours": "#0b6bcb",
    "floor": "#6e7781",
    "peer": "#bc5a1a",
}
DARK = {
    "ground": "#0d1117",
    "text": "#f0f6fc",
    "soft": "#9aa4af",
    "grid": "#262c34",
    "ours": "#58a6ff",
    "floor": "#8d96a0",
    "peer": "#f0883e",
}


def _style(colours: dict[str, str]) -> str:
    rules = [f".ground{{fill:{colours['ground']}}} .text{{fill:{colours['text']}}} .soft{{fill:{colours['soft']}}}"]
    rules.append(f".grid{{stroke:{colours['grid']}}}")
    for who in ("ours", "floor", "peer"):
        rules.append(f".{who}{{fill:{colours[who]}}} .{who}-line{{stroke:{colours[who]}}}")
    return " ".join(rules)


@dataclass(frozen=True, slots=True)
class Axis:
    """From values to places."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool

    def at(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        share = (value - low) / (high - low) if high > low else 0.0
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def has(self, value: float) -> bool:
        return self.low <= value <= self.high

    def ticks(self) -> list[float]:
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            found = [10.0**power for power in range(first, last + 1)]
            if len(found) > 1:
                return found
            return [tick for power in (first - 1, first) for tick in (10.0**power, 3 * 10.0**power) if self.has(tick)]
        step = 10 ** math.floor(math.log10(self.high / 2))
        step = next(step * factor for factor in (1, 2, 5, 10) if self.high / (step * factor) <= 6)
        return [step * number for number in range(int(self.high / step + 1e-9) + 1)]


def axis(values: Sequence[float], start: float, end: float) -> Axis:
    positive = [value for value in values if value > 0] or [1.0]
    low, high = min(positive), max(positive)
    if high / low >= LOG_FROM:
        return Axis(low / 1.3, high * 1.3, start, end, True)
    return Axis(0, high * 1.05, start, end, False)


def number(value: float) -> str:
    """Three digits that matter."""
    if value >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value else "0"


def amount(value: float, unit: str) -> str:
    if unit == "ms" and value >= 1000:
        return f"{value / 1000:.3g} s"
    return f"{number(value)} {unit}"


def tick_label(value: float, unit: str) -> str:
    return f"{value / 1000:g} s" if unit == "ms" and value >= 1000 else f"{value:g} {unit}"


def size(value: float) -> str:
    """Of bytes, or a plain count."""
    for factor, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if value >= factor and value % factor == 0:
            return f"{value / factor:g} {name}"
    return f"{value:g}"


def picture(answer: Answer) -> str:
    """The whole SVG document."""
    panels = panels_of(answer.rows)
    parts: list[str] = []
    title = textwrap.wrap(answer.question.replace("`", ""), 88)
    y = HEAD + 20.0 * (len(title) - 1)
    under = y - 11
    for case, rows in panels:
        steps = {row.at for row in rows if row.at is not None}
        if len(steps) > 1:
            drawn, height = _lines(case, rows, y)
        else:
            drawn, height = _dots(", ".join([case, *map(size, steps)]), rows, y)
        parts += drawn
        y += height + 14
    style = f"{_style(LIGHT)} @media (prefers-color-scheme: dark) {{ {_style(DARK)} }}"
    y = round(y)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" '
            f"role='img' font-family=\"'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', sans-serif\" font-size=\"12.5\">",
            f"<title>{escape(answer.question)}</title>",
            f"<style>{style}</style>",
            f'<rect class="ground" width="{WIDTH}" height="{y}" rx="6"/>',
            *(_text(20, 28 + 20 * index, line, "text", size_=15, bold=True) for index, line in enumerate(title)),
            _key(under),
            *parts,
            "</svg>\n",
        ]
    )


def _key(y: float) -> str:
    """What colours and marks mean, in one line."""
    words = [("ours", "● Holdfast"), ("peer", "● a peer"), ("floor", "● a floor")]
    spans = "".join(f'<tspan class="{kind}" font-weight="600">{text}</tspan>  ' for kind, text in words)
    marks = "point: median · thick: 95% confidence of it · whisker: 95th percentile"
    return f'<text class="soft" x="20" y="{y}" font-size="11.5" xml:space="preserve">{spans}  {marks}</text>'


def panels_of(rows: Sequence[Measured]) -> list[tuple[str, list[Measured]]]:
    found: dict[str, list[Measured]] = {}
    for row in rows:
        found.setdefault(row.case, []).append(row)
    return list(found.items())


def _text(
    x: float, y: float, words: str, kind: str, *, anchor: str = "start", size_: float = 12.5, bold: bool = False
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size_}"'
    weight = ' font-weight="600"' if bold else ""
    return f'<text class="{kind}" {place}{weight}>{escape(words)}</text>'


def _rule(x1: float, y1: float, x2: float, y2: float, kind: str, width: float = 1) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke-width="{width}"/>'


def _heading(case: str, unit: str, scale: Axis, y: float) -> str:
    better = "more is better" if unit == "op/s" else "less is better"
    words = f"{better}{', logarithmic' if scale.logarithmic else ''}"
    bold = f'<tspan font-weight="600">{escape(case)}</tspan>' if case else ""
    remark = f'<tspan class="soft" font-size="11.5" dx="10">{words}</tspan>'
    return f'<text class="text" x="20" y="{y + 14:.1f}" font-size="13">{bold}{remark}</text>'


def _dots(case: str, rows: list[Measured], top: float) -> tuple[list[str], float]:
    """Contenders under each other, the best first."""
    unit = rows[0].unit
    rows = sorted(rows, key=lambda row: row.median, reverse=unit == "op/s")
    scale = axis([value for row in rows for value in (row.low, row.median, row.p95)], LEFT, RIGHT)
    out = [_heading(case, unit, scale, top)]
    first = top + 28
    bottom = first + LINE * len(rows)
    for tick in scale.ticks():
        out.append(_rule(scale.at(tick), first, scale.at(tick), bottom, "grid"))
        out.append(_text(scale.at(tick), bottom + 13, tick_label(tick, unit), "soft", anchor="middle", size_=10.5))
    ours = [row for row in rows if row.who == "ours"]
    like = next((row for row in ours if row.name == ON_DOCKER), ours[0] if ours else None)
    for index, row in enumerate(rows):
        y = first + LINE * index + LINE / 2
        kind = row.who
        out.append(
            _text(
                LEFT - 12,
                y + 4,
                _short(row.name),
                kind if kind == "ours" else "text",
                anchor="end",
                bold=kind == "ours",
            )
        )
        out.append(_rule(scale.at(row.median), y, scale.at(row.p95), y, f"{kind}-line", 1.2))
        out.append(_rule(scale.at(row.p95), y - 4, scale.at(row.p95), y + 4, f"{kind}-line", 1.2))
        out.append(_rule(scale.at(row.low), y, scale.at(row.high), y, f"{kind}-line", 6))
        out.append(f'<circle class="{kind}" cx="{scale.at(row.median):.1f}" cy="{y:.1f}" r="5"/>')
        words = amount(row.median, unit)
        out.append(_text(RIGHT + 16, y + 4, words, kind if kind == "ours" else "text", bold=kind == "ours"))
        out.append(_text(RIGHT + 100, y + 4, _beside(row, like), "soft", size_=11.5))
    return out, bottom + 20 - top


def _beside(row: Measured, like: Measured | None) -> str:
    """What to compare it with. Peers run on Docker: they are compared with what we do there."""
    if row.note:
        return _short(row.note, 26)
    if row.ratio is not None:
        return f"{row.ratio:.2f}× {_short(row.baseline or '', 22)}"
    if row.who == "peer" and like and like.median and row.median:
        times = like.median / row.median if row.unit == "op/s" else row.median / like.median
        where = "ours on docker" if like.name == ON_DOCKER else "ours"
        return f"{times:.2f}× {where}" if times < 10 else f"{times:.0f}× {where}"
    return {"floor": "floor", "peer": "peer", "ours": ""}[row.who]


def _short(name: str, most: int = 30) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _lines(case: str, rows: list[Measured], top: float) -> tuple[list[str], float]:
    """A line for each contender, named at its end."""
    unit = rows[0].unit
    spread = [row.at for row in rows if row.at]
    across = Axis(min(spread), max(spread), LEFT - 146, PLOT_RIGHT, max(spread) / min(spread) >= 4)
    first, bottom = top + 30, top + 30 + PLOT_HEIGHT
    up = axis([row.median for row in rows], bottom, first)
    out = [_heading(case, unit, up, top)]
    for tick in up.ticks():
        out.append(_rule(across.start, up.at(tick), across.end, up.at(tick), "grid"))
        out.append(_text(across.start - 8, up.at(tick) + 4, tick_label(tick, unit), "soft", anchor="end", size_=10.5))
    for at in sorted(set(spread)):
        out.append(_text(across.at(at), bottom + 16, size(at), "soft", anchor="middle", size_=10.5))
    series: dict[str, list[Measured]] = {}
    for row in rows:
        series.setdefault(row.name, []).append(row)
    ends: list[tuple[float, Measured]] = []
    for found in series.values():
        ordered = sorted(found, key=lambda row: row.at or 0)
        kind = ordered[0].who
        places = [(across.at(row.at or 0), up.at(row.median)) for row in ordered]
        path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        dash = ' stroke-dasharray="5 4"' if kind == "floor" else ""
        out.append(
            f'<path class="{kind}-line" d="{path}" fill="none" stroke-width="{2.6 if kind == "ours" else 1.5}"{dash}/>'
        )
        for (x, y), row in zip(places, ordered, strict=True):
            out.append(_rule(x, up.at(row.low), x, up.at(row.high), f"{kind}-line", 1))
            out.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>')
        ends.append((places[-1][1], ordered[-1]))
    for y, row in _apart(ends):
        x = across.at(row.at or 0)
        out.append(_rule(x + 5, up.at(row.median), PLOT_RIGHT + 18, y, "grid"))
        words = f"{_short(row.name, 26)} {amount(row.median, unit)}"
        if row.at != max(spread):
            words += f" ({size(row.at or 0)})"
        out.append(_text(PLOT_RIGHT + 22, y + 4, words, row.who, bold=row.who == "ours", size_=11.5))
    return out, PLOT_HEIGHT + 52


def _apart(ends: list[tuple[float, Measured]], gap: float = 16.0) -> list[tuple[float, Measured]]:
    """Labels at the height of their line's end, moved until none covers another."""
    ordered = sorted(ends, key=lambda end: end[0])
    places = [y for y, _ in ordered]
    for _ in range(200):
        moved = False
        for index in range(len(places) - 1):
            overlap = gap - (places[index + 1] - places[index])
            if overlap > 0.01:
                places[index] -= overlap / 2
                places[index + 1] += overlap / 2
                moved = True
        if not moved:
            break
    return [(place, row) for place, (_, row) in zip(places, ordered, strict=True)]


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
