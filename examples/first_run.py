"""What `make run` shows: code in a fresh sandbox, and a session in which code is written, broken and fixed."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import holdfast
from holdfast import SandboxError, Session

HERE = Path(__file__).parent
COLOUR = sys.stdout.isatty()


def style(text: str, code: str) -> str:
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


def heading(text: str) -> None:
    print(f"\n{style('━━ ' + text + ' ' + '━' * max(0, 86 - len(text)), '1;36')}")


def fact(name: str, value: str) -> None:
    print(f"  {style(name.ljust(9), '2')} {value}")


def block(text: str, bar: str = "│") -> None:
    for line in text.rstrip().splitlines():
        print(f"  {style(bar, '2')} {line}")


def verdict(good: bool, text: str) -> None:
    print(f"  {style('✔' if good else '✘', '1;32' if good else '1;31')} {text}")


def code_of(prompt: Path) -> str:
    """The code that the prompt file shows its agent."""
    found = re.search(r"```python\n(.*?)```", prompt.read_text(), re.DOTALL)
    assert found, f"{prompt} holds no example"
    return found[1]


def compute_mode() -> bool:
    heading("Compute mode: one question, one fresh sandbox")
    log = (HERE / "app.log").read_text()
    prompt = HERE / "log_analyzer.prompt"
    fact("agent", "examples/log_analyzer.prompt  (frontmatter: `sandbox: python`)")
    (tool,) = holdfast.toolset(prompt)
    fact("tool", f"{tool.name}, called as a model would")
    fact("input", f"app.log, {len(log.splitlines())} lines, such as:")
    block("\n".join(log.splitlines()[:3]), "┆")
    started = time.perf_counter()
    result = tool.call_blocking({"code": code_of(prompt), "files": {"app.log": log}, "timeout_seconds": 30})
    took = (time.perf_counter() - started) * 1000
    if "error" in result:
        verdict(False, result["error"])
        return False
    limits = result["limits"]
    fact("ran on", f"{result['engine']}, {result['runtime']}, no network")
    fact(
        "limits",
        f"{limits['timeout_seconds']} s, {limits['memory_mb']} MB memory, {limits['workspace_mb']} MB disk, "
        f"{limits['processes']} processes",
    )
    for name, reason in limits.get("not_held", {}).items():
        fact("", f"{name} does not hold in full: {reason}")
    fact("result", "")
    block(result["stdout"])
    verdict(
        result["ok"],
        f"exit {result['exit_code']} ({result['end_cause']}) in {result['duration_ms']} ms, "
        f"{took:.0f} ms with its sandbox; {result['peak_memory_bytes'] >> 20} MB at its peak; nothing is left",
    )
    return bool(result["ok"])


def attempt(box: Session, source: str) -> bool:
    box.write("stats.py", source)
    result = box.exec("python3 stats.py 3 1 4 1 5", timeout=10)
    block(source, "┆")
    last = (result.stdout if result.ok else result.stderr).strip().splitlines()[-1]
    verdict(result.ok, f"python3 stats.py 3 1 4 1 5  →  {last}   ({result.duration_ms:.0f} ms)")
    return result.ok


def code_mode() -> bool:
    heading("Code mode: one sandbox, kept while an agent works")
    with holdfast.open_session(runtime="python") as box:
        effective = box.effective
        fact("session", f"on {effective.engine}, {effective.workspace}, {'new' if box.created else 'resumed'}")
        first = attempt(box, "import sys\nnumbers = sys.argv[1:]\nprint('mean', sum(numbers) / len(numbers))\n")
        second = attempt(
            box, "import sys\nnumbers = [int(n) for n in sys.argv[1:]]\nprint('mean', sum(numbers) / len(numbers))\n"
        )
        runaway = box.exec("(setsid sleep 600 &) ; sleep 600", timeout=0.5)
        verdict(
            runaway.end_cause == "timeout",
            f"a runaway with a daemon: {runaway.end_cause} after "
            f"{runaway.duration_ms:.0f} ms, {runaway.left_count} stray processes killed",
        )
    return not first and second and runaway.end_cause == "timeout"


def main() -> int:
    print(style("Holdfast", "1") + " gives LLM agents a safe place to run code.")
    try:
        good = compute_mode() and code_mode()
    except SandboxError as error:
        print(f"\n{style('✘', '1;31')} {error}", file=sys.stderr)
        return 125
    heading("Try it yourself")
    block(
        ".venv/bin/holdfast run -c 'print(6 * 7)'\n"
        ".venv/bin/holdfast doctor             which engines work here, and what each guarantees\n"
        "make test                             the whole suite, on real engines",
        " ",
    )
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
