"""Limits: what is claimed holds, what is reached is named, and the session works on afterwards."""

from __future__ import annotations

import pytest

from holdfast import EndCause, Limits, errors
from holdfast.abc import Capability, Engine

from .conftest import Open, ProbeArgv
from .requires import requires

pytestmark = pytest.mark.anyio
MB = 1 << 20


async def test_limits_are_told_as_they_are(open_session: Open) -> None:
    limits = Limits(memory_mb=300, processes=None, workspace_mb=64)
    async with open_session(limits=limits) as box:
        assert box.effective.limits["memory_mb"] == 300
        assert "processes" not in box.effective.limits
        assert set(box.effective.not_held) <= set(box.effective.limits)
        assert all(box.effective.not_held.values()), "each with its reason"


async def test_what_is_claimed_is_held(open_session: Open, engine: Engine) -> None:
    names = {"memory_mb": Capability.MEMORY_LIMIT, "processes": Capability.PROCESS_LIMIT}
    async with open_session() as box:
        status = await engine.check()
        for name, capability in names.items():
            assert (name in box.effective.not_held) == (capability not in status.capabilities)


# --- the workspace


@requires(Capability.WORKSPACE_LIMIT)
async def test_a_write_over_the_workspace_is_refused_and_one_within_is_not(open_session: Open) -> None:
    async with open_session(limits=Limits(workspace_mb=8)) as box:
        await box.write("kept", bytes(4 * MB))
        with pytest.raises(errors.WorkspaceFull):
            await box.write("over", bytes(6 * MB))
        assert [entry.path for entry in (await box.list()).entries] == ["kept"], "no part of it is left"
        await box.write("fits", bytes(2 * MB))
        await box.delete("kept")
        await box.write("over", bytes(5 * MB))


@requires(Capability.WORKSPACE_LIMIT)
async def test_a_write_that_does_not_fit_leaves_the_old_content(open_session: Open) -> None:
    async with open_session(limits=Limits(workspace_mb=8)) as box:
        await box.write("file", "old")
        with pytest.raises(errors.WorkspaceFull):
            await box.write("file", bytes(9 * MB))
        assert await box.read("file") == b"old"


@requires(Capability.WORKSPACE_LIMIT)
async def test_a_program_that_fills_the_workspace_ends_by_it(open_session: Open, probe: ProbeArgv) -> None:
    async with open_session(limits=Limits(workspace_mb=8)) as box:
        assert (await box.exec(probe("heap", "small", 2))).end_cause is EndCause.COMPLETED
        result = await box.exec(probe("heap", "large", 20))
        assert (result.end_cause, result.exit_code) == (EndCause.DISK_FULL, 1)
        assert sum(entry.size_bytes for entry in (await box.list("large")).entries) <= 8 * MB
        assert (await box.exec(probe("say", "works", "", 0))).stdout == "works", "full, and usable"
        await box.delete("small", recursive=True)
        await box.write("after", bytes(MB))


@requires(Capability.WORKSPACE_LIMIT)
async def test_the_number_of_files_is_limited(open_session: Open, probe: ProbeArgv) -> None:
    async with open_session(limits=Limits(max_files=50)) as box:
        assert (await box.exec(probe("litter", "many", 20))).ok
        with pytest.raises(errors.TooManyFiles, match="50"):
            for number in range(50):
                await box.write(f"more/{number}", "")
        assert 20 <= len(await box.list(recursive=True)) <= 50
        await box.delete("many", recursive=True)
        await box.write("again", "")


async def test_a_file_has_a_largest_size(open_session: Open) -> None:
    async with open_session(limits=Limits(max_file_size_bytes=MB)) as box:
        await box.write("exact", bytes(MB))
        with pytest.raises(errors.FileTooLarge, match=str(MB)):
            await box.write("over", bytes(MB + 1))
        assert [entry.path for entry in (await box.list()).entries] == ["exact"]


@requires(Capability.REAL_PROCESSES)
async def test_a_program_has_the_same_largest_size(open_session: Open, probe: ProbeArgv) -> None:
    async with open_session(limits=Limits(max_file_size_bytes=2 * MB)) as box:
        assert (await box.exec(probe("fill", "fits", 2))).ok
        assert not (await box.exec(probe("fill", "over", 4))).ok
        assert (await box.stat("over")).size_bytes <= 2 * MB


async def test_the_status_tells_how_full_it_is(open_session: Open) -> None:
    async with open_session(limits=Limits(workspace_mb=16)) as box:
        before = await box.status()
        await box.write("file", bytes(4 * MB))
        after = await box.status()
        assert before.workspace_total_bytes == after.workspace_total_bytes
        assert 4 * MB <= before.workspace_free_bytes - after.workspace_free_bytes < 5 * MB


# --- memory and processes


@requires(Capability.MEMORY_LIMIT)
async def test_memory_over_the_limit_is_oom_and_the_session_lives(open_session: Open, probe: ProbeArgv) -> None:
    async with open_session(limits=Limits(memory_mb=64, workspace_mb=8)) as box:
        assert (await box.exec(probe("eat", 20))).stdout == "fed\n"
        result = await box.exec(probe("eat", 400))
        assert (result.end_cause, result.exit_code, result.ok) == (EndCause.OOM, None, False)
        assert (await box.exec(probe("eat", 20))).stdout == "fed\n"


@requires(Capability.PROCESS_LIMIT)
async def test_processes_over_the_limit_are_refused_and_the_session_lives(open_session: Open, probe: ProbeArgv) -> None:
    async with open_session(limits=Limits(processes=64)) as box:
        assert (await box.exec(probe("multiply", 20))).stdout == "20\n"
        result = await box.exec(probe("multiply", 500))
        assert (result.end_cause, result.exit_code) == (EndCause.PIDS_LIMIT, 1)
        assert (await box.exec(probe("multiply", 20))).stdout == "20\n"


@requires(Capability.PROCESS_LIMIT)
async def test_a_limit_of_one_session_is_not_anothers(open_session: Open, probe: ProbeArgv) -> None:
    async with open_session(limits=Limits(processes=32)) as full, open_session() as other:
        held = await full.start(["sh", "-c", "while :; do sleep 3600 & done"])
        for _ in range(3):
            assert (await other.exec(probe("say", "free", "", 0))).stdout == "free"
        await held.kill()
        assert (await full.exec(probe("say", "free", "", 0))).stdout == "free"
