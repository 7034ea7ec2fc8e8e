"""What does an exec in an open session cost, compared with starting the same program on the host?

On Docker the same program means the image's: the host starts it by chroot into the container's root. What chroot itself
costs is measured too, as `host: chroot`, and counts for the baseline.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from _floors import BUBBLEWRAP, SYSTEM_PYTHON, TRUE, host, raw_container
from _measure import Contest, Row, chosen_engines, main
from _peers import peers

from holdfast import aio

PASS = ["-c", "pass"]


async def measure(rounds: int) -> list[Row]:
    true, python = Contest("exec true"), Contest("exec python3 -c pass")
    async with AsyncExitStack() as stack:
        true.floor("host", partial(host, TRUE))
        python.floor("host", partial(host, [SYSTEM_PYTHON, *PASS]))
        if "local" in chosen_engines():
            box = await stack.enter_async_context(aio.open_session(engine="local"))
            true.floor("host: bwrap", partial(host, [*BUBBLEWRAP, *TRUE]))
            python.floor("host: bwrap", partial(host, [*BUBBLEWRAP, SYSTEM_PYTHON, *PASS]))
            true.ours("holdfast, local", partial(box.exec, TRUE), "host", "1.5x")
            python.ours("holdfast, local", partial(box.exec, [SYSTEM_PYTHON, *PASS]), "host", "1.2x")
        if "docker" in chosen_engines():
            box = await stack.enter_async_context(aio.open_session(engine="docker"))
            raw = stack.enter_context(raw_container())
            chroot = ["/usr/sbin/chroot", f"/proc/{pid(box)}/root"]
            image = ["/usr/bin/python3", *PASS]
            true.floor("host: chroot", partial(host, [*chroot, *TRUE]))
            python.floor("host: chroot", partial(host, [*chroot, *image]))
            true.ours("holdfast, docker", partial(box.exec, TRUE), "Docker API: exec", "1/25")
            python.ours("holdfast, docker", partial(box.exec, image), "host: chroot", "1.2x")
            for contest, argv in ((true, TRUE), (python, image)):
                contest.floor("Docker API: exec", partial(_raw, raw.exec, argv))
        for peer in await stack.enter_async_context(peers("exec")):
            for contest, argv in ((true, TRUE), (python, ["python3", *PASS])):
                contest.peer(peer.name, partial(peer.time, "exec", argv=argv))
        return [row for contest in (true, python) for row in await contest.in_turns(rounds)]


async def _raw(function: Any, *words: Any) -> None:
    function(*words)


def pid(box: aio.Session) -> int:
    """Of the container's first process, as the host sees it."""
    import docker

    client: Any = docker.from_env()
    found: int = client.containers.get(box.key.sandbox_name).attrs["State"]["Pid"]
    client.close()
    return found


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure, rounds=100, engines=("local", "docker"))
