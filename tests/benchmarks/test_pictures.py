"""Pictures and pages of a report that is known."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from _measure import Contest, Row, Who, as_json
from _page import page, write_pages
from _picture import axis, picture
from _report import Answer, Machine, Measured, Report
from _trend import compared, trend

SVG = "{http://www.w3.org/2000/svg}"


def rows_of(*rows: Row) -> list[Measured]:
    found = as_json("?", list(rows))["rows"]
    assert isinstance(found, list)
    return [Measured.model_validate(row) for row in found]


def answer(factor: float = 1.0) -> Answer:
    samples = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6]
    bars = [
        Row("host", "ms", samples, case="exec <true>", who="floor"),
        Row("holdfast, local", "ms", [n * 1.4 * factor for n in samples], "host", "1.5x", "exec <true>"),
        Row("a & b", "ms", [n * 90 for n in samples], case="exec <true>", who="peer", note="left 1 of 3"),
    ]
    contenders: list[tuple[str, Who]] = [("holdfast, local", "ours"), ("host", "floor")]
    curves = [
        Row(name, "op/s", [n * at for n in samples], case="at once", who=who, at=at)
        for name, who in contenders
        for at in (1.0, 8.0, 64.0)
    ]
    return Answer(
        name="exec", question="What does it cost & why?", command="python benchmarks/bench_exec.py", engines=["local"],
        seconds=3, left_out={"a peer": "it needs a moon"}, rows=rows_of(*bars, *curves),
    )  # fmt: skip


def report(factor: float = 1.0, started: str = "2026-01-01T00:00:00+00:00") -> Report:
    machine = Machine(
        cpu="a chip", cores=2, memory_mb=2048, kernel="6", system="an OS", python="3.11", load_before=0.1, versions={}
    )
    return Report(
        started=started, seconds=60, command="make bench", quick=False, commit="abc", machine=machine,
        peers={"a & b": "1.0"}, answers=[answer(factor)],
    )  # fmt: skip


def test_a_picture_is_valid_xml_with_a_label_for_each_row() -> None:
    root = ET.fromstring(picture(answer()))
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    for label in ("host", "holdfast, local", "a & b", "What does it cost & why?"):
        assert label in texts
    assert any(text.startswith("exec <true>") for text in texts) and any("more is better" in text for text in texts)
    assert "1.40× host" in texts and "1.82 ms" in texts
    assert any(text.startswith("holdfast, local 83.2 op/s") for text in texts), texts


def test_everything_is_inside_and_readable_in_light_and_dark() -> None:
    drawn = picture(answer())
    root = ET.fromstring(drawn)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for mark in (*root.iter(f"{SVG}circle"), *root.iter(f"{SVG}text")):
        x, y = (float(mark.get(key, mark.get(f"c{key}", "nan"))) for key in "xy")
        assert 0 <= x <= width and 0 <= y <= height, ET.tostring(mark)
    assert "prefers-color-scheme: dark" in drawn
    used = {mark.attrib["class"] for mark in root.iter() if "class" in mark.attrib}
    light, dark = drawn.split("@media")
    for name in used:
        assert f".{name}{{" in light and f".{name}{{" in dark


def test_an_axis_is_logarithmic_where_values_are_far_apart() -> None:
    far, near = axis([1, 500], 0, 100), axis([2, 6], 0, 100)
    assert far.logarithmic and far.ticks() == [1, 10, 100] and far.at(500**0.5) == pytest.approx(50)
    assert axis([1.5, 18.5], 0, 100).ticks() == [3, 10]
    assert not near.logarithmic and near.at(0) == 0 and near.ticks()[0] == 0
    assert axis([0.0], 0, 100).at(0) == 0


def test_the_page_says_how_to_make_each_number_again() -> None:
    text = page(report())
    assert "$ python benchmarks/bench_exec.py" in text and "(exec.svg)" in text and "(exec.png)" in text
    assert "| **holdfast, local** | 1.82 ms |" in text and "without a peer: it needs a moon" in text
    assert "left 1 of 3" in text


def test_pages_are_written_with_the_data_they_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_BENCH_CACHE", str(tmp_path / "no environment"))
    write_pages(report(), tmp_path / "out")
    assert Report.model_validate_json((tmp_path / "out/data.json").read_text()) == report()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"data.json", "README.md", "exec.svg"}


def test_a_comparison_shows_what_moved_and_only_that() -> None:
    told = compared(report(), report(3.0))
    assert len(re.findall(r"worse +3\.00x .*holdfast, local", told)) == 1 and "better" not in told
    assert "8 others did not move" in told
    assert "worse" not in compared(report(), report()) and "9 others did not move" in compared(report(), report())


def test_a_trend_has_a_column_for_each_report_in_order_of_time() -> None:
    text = trend([report(3.0, "2026-02-02T00:00:00+00:00"), report()])
    assert text.index("2026-01-01") < text.index("2026-02-02")
    assert "| exec · exec <true> · holdfast, local | 1.82 ms | **5.46 ms** |" in text


def test_rows_are_compared_within_their_case_only() -> None:
    rows = [Row("a", "ms", [1.0], case="x"), Row("a", "ms", [4.0], case="y"), Row("b", "ms", [8.0], "a", case="y")]
    assert rows[2].compared(rows) == 2
    assert Row("b", "ms", [8.0], "a", case="z").compared(rows) is None
    assert Contest("x", 4).title == "x, 4"
