"""Writes a report as documents: data.json, README.md, and a picture for each question as SVG and PNG."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from _peers import python
from _picture import amount, panels_of, picture, size
from _report import Answer, Measured, Report

_TO_PNG = """
import sys, resvg_py
for path in sys.argv[1:]:
    drawn = resvg_py.svg_to_bytes(svg_path=path, zoom=1.5)
    open(path.removesuffix("svg") + "png", "wb").write(bytes(drawn))
"""


def write_pages(report: Report, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.json").write_text(report.model_dump_json(indent=1) + "\n")
    pictures: list[Path] = []
    for answer in report.answers:
        if answer.rows:
            path = folder / f"{answer.name}.svg"
            path.write_text(picture(answer))
            pictures.append(path)
    (folder / "README.md").write_text(page(report))
    if python().exists():
        subprocess.run([str(python()), "-c", _TO_PNG, *map(str, pictures)], check=True)
    else:
        print("no PNG: the peers' environment, which has the converter, was not made", file=sys.stderr)


CAVEATS = """\
**Caveats.** One machine, one run: compare rows with each other, not with numbers from elsewhere. Contenders are
measured in turns, round by round, so that noise hits all alike; but a program that runs after nine others finds
cold caches, and in a tight loop everything here is faster. The images are stand-ins made of Debian packages,
without a network. AutoGen's files are the host's own, in a bind mount: nothing is transferred. inspect_ai's check
of the daemon's version is switched off. SWE-ReX and smolagents have their server in the image, and a port.
What a peer keeps of an output is all of it; Holdfast keeps its first and last bytes, and the true count."""


def page(report: Report) -> str:
    machine = report.machine
    made = (
        f"{report.started[:16].replace('T', ' ')} UTC, in {report.seconds / 60:.0f} minutes, commit `{report.commit}`"
    )
    facts = {
        "measured": made + (", quick: few rounds" if report.quick else ""),
        "machine": f"{machine.cpu}, {machine.cores} cores, {machine.memory_mb / 1024:.0f} GB",
        "load before": f"{machine.load_before}",
        "system": f"{machine.system}, kernel {machine.kernel}, Python {machine.python}",
        "engines": ", ".join(f"{name} {version}" for name, version in machine.versions.items()),
        "peers": ", ".join(f"{name} {version}" for name, version in report.peers.items()) or "none",
    }
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`; do not edit. How each number is taken: [benchmarks/](../../benchmarks/README.md).",
        "",
        "| | |\n|---|---|",
        *(f"| {name} | {text} |" for name, text in facts.items()),
        "",
        CAVEATS,
        "",
        "Questions: " + " · ".join(f"[{answer.name}](#{answer.name})" for answer in report.answers),
        "",
    ]
    for answer in report.answers:
        lines += section(answer)
    return "\n".join(lines).rstrip() + "\n"


def section(answer: Answer) -> list[str]:
    lines = [f"## {answer.name}", "", answer.question, ""]
    if answer.rows:
        lines += [f"![{answer.question}]({answer.name}.svg)", ""]
    if answer.error:
        lines += [f"Not measured: {answer.error}.", ""]
    for case, rows in panels_of(answer.rows):
        lines += _curve(case, rows) if any(row.at is not None for row in rows) else _plain(case, rows)
    for name, reason in answer.left_out.items():
        lines.append(f"- without {name}: {reason}")
    lines += [""] if answer.left_out else []
    lines += [
        f"Again, in {answer.seconds:.0f} s ([picture as PNG]({answer.name}.png)):",
        "",
        "```console",
        f"$ {answer.command}",
        "```",
        "",
    ]
    return lines


def _plain(case: str, rows: list[Measured]) -> list[str]:
    lines = [
        f"| {case or 'what'} | median | 95% confidence | p95 | rounds | compared | goal |",
        "|---|---:|---:|---:|---:|---|---|",
    ]
    for row in rows:
        name = f"**{row.name}**" if row.who == "ours" else row.name
        between = f"{amount(row.low, row.unit)} – {amount(row.high, row.unit)}"
        ratio = f"{row.ratio:.2f}× {row.baseline}" if row.ratio is not None else ""
        note = f"<br>{row.note}" if row.note else ""
        numbers = f"{amount(row.median, row.unit)} | {between} | {amount(row.p95, row.unit)} | {len(row.samples)}"
        lines.append(f"| {name}{note} | {numbers} | {ratio} | {row.goal} |")
    return [*lines, ""]


def _curve(case: str, rows: list[Measured]) -> list[str]:
    steps = sorted({row.at for row in rows if row.at is not None})
    lines = [f"| {case} | " + " | ".join(size(at) for at in steps) + " |", "|---|" + "---:|" * len(steps)]
    for name in dict.fromkeys(row.name for row in rows):
        found = {row.at: row for row in rows if row.name == name}
        cells = [amount(found[at].median, found[at].unit) if at in found else "–" for at in steps]
        shown = f"**{name}**" if next(iter(found.values())).who == "ours" else name
        lines.append(f"| {shown} | " + " | ".join(cells) + " |")
    return [*lines, ""]
