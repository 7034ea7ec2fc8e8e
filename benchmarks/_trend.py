"""Compares reports: one with an earlier one, or several as a table over time."""

from __future__ import annotations

from _report import Measured, Report
from _stats import moved


def compared(before: Report, after: Report) -> str:
    """What moved beyond the noise, the largest first."""
    lines = [f"compared with {before.started} ({before.commit}):"]
    old = _places(before)
    found: list[tuple[float, str]] = []
    same = 0
    for (question, place), row in _places(after).items():
        was = old.get((question, place))
        if was is None or was.unit != row.unit:
            continue
        factor = moved(was.samples, row.samples)
        if factor is None:
            same += 1
            continue
        worse = (factor < 1) == (row.unit == "op/s")
        what = " · ".join(str(part) for part in (question, *(part for part in place if part not in {None, ""})))
        size = max(factor, 1 / factor) if factor else float("inf")
        words = "worse" if worse else "better"
        found.append((size, f"  {words:<6} {factor:5.2f}x  {was.median:.4g} → {row.median:.4g} {row.unit:<5} {what}"))
    lines += [text for _, text in sorted(found, reverse=True)]
    lines.append(f"  {same} others did not move beyond the noise")
    if _where(before) != _where(after):
        lines.append("  NOT the same machine or engines: this comparison means little")
    return "\n".join(lines)


def trend(reports: list[Report]) -> str:
    """A Markdown page: medians of ours, one column for each report, in order of time."""
    ordered = sorted(reports, key=lambda report: report.started)
    lines = ["# How the numbers of Holdfast moved", ""]
    lines += ["| | " + " | ".join(f"{report.started[:16]}<br>`{report.commit}`" for report in ordered) + " |"]
    lines += ["|---|" + "---:|" * len(ordered)]
    columns = [_places(report) for report in ordered]
    keys = list(dict.fromkeys(key for column in columns for key, row in column.items() if row.who == "ours"))
    for question, place in keys:
        rows = [column.get((question, place)) for column in columns]
        what = " · ".join(str(part) for part in (question, *(part for part in place if part not in {None, ""})))
        lines.append(f"| {what} | " + " | ".join(_cell(rows, index) for index in range(len(rows))) + " |")
    lines += ["", "**Bold**: moved beyond the noise since the report before, on the same machine."]
    if len({_where(report) for report in ordered}) > 1:
        lines += ["", "These are reports of different machines or engines: compare columns with care."]
    return "\n".join(lines)


def _cell(rows: list[Measured | None], index: int) -> str:
    row = rows[index]
    if row is None:
        return "–"
    text = f"{row.median:.4g} {row.unit}"
    was = rows[index - 1] if index else None
    return f"**{text}**" if was and moved(was.samples, row.samples) is not None else text


def _places(report: Report) -> dict[tuple[str, tuple[str, float | None, str]], Measured]:
    return {(answer.name, row.place): row for answer in report.answers for row in answer.rows}


def _where(report: Report) -> tuple[object, ...]:
    machine = report.machine
    return machine.cpu, machine.cores, machine.kernel, tuple(sorted(machine.versions.items()))
