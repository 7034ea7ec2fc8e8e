"""The harness itself: one tiny question, really measured."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from _harness import engines_of, questions
from _report import Report

from ..testbed import require

ROOT = Path(__file__).parents[2]


@pytest.mark.engines
def test_a_real_run_is_what_the_schema_says(tmp_path: Path) -> None:
    require("bubblewrap")
    command = [sys.executable, "-m", "benchmarks", "exec", "--engine", "local", "--peers", "none", "--quick", "--json"]
    environment = {**os.environ, "HOLDFAST_BENCH_CACHE": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=True)
    report = Report.model_validate_json(done.stdout)
    (answer,) = report.answers
    ours = next(row for row in answer.rows if row.name == "holdfast, local" and row.case == "exec true")
    assert ours.low <= ours.median <= ours.high and ours.ratio is not None and ours.baseline == "host"
    assert report.quick and report.machine.cores and "local" in report.machine.versions
    assert "[1/1] exec" in done.stderr
    properties = json.loads(json.dumps(Report.model_json_schema()))["$defs"]["Measured"]["properties"]
    assert set(json.loads(done.stdout)["answers"][0]["rows"][0]) == set(properties)
    assert all("description" in properties[name] for name in ("case", "at", "who", "low", "ratio", "samples"))


def test_every_question_is_found_with_its_engines() -> None:
    assert questions()[:2] == ("exec", "open") and "import" in questions()
    assert engines_of("exec") == ("local", "docker") and engines_of("import") == ()


def test_an_unknown_question_is_refused_with_the_ones_there_are() -> None:
    command = [sys.executable, "-m", "benchmarks", "exce"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "no question exce" in done.stderr and "exec" in done.stderr
