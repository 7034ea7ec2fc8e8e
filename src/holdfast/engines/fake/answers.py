"""What the fake's guest answers: each request of the protocol, on a sandbox in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from ... import errors
from ...guest import protocol
from ...guest.protocol import EndCause, Kind, OutputStream, from_wire, to_wire
from ...results import FileEntry
from . import artifacts
from .exec import Exec
from .files import Upload
from .output import Batch
from .sandbox import FakeSandbox
from .server import Stream

_KINDS = {OutputStream.STDOUT: Kind.DATA, OutputStream.STDERR: Kind.DATA_ERR}
_MAX_READ_BYTES = 16 << 20
_SIGKILL = 9


class Answers:
    """The requests, each with the frame that answers it."""

    def __init__(self, sandbox: FakeSandbox) -> None:
        self._sandbox = sandbox
        self._files, self._execs = sandbox.files, sandbox.execs
        self._handlers: dict[type, Callable[[Stream, Any], Awaitable[protocol.Frame]]] = {
            protocol.ExecRequest: self._exec,
            protocol.ExecRead: self._exec_read,
            protocol.ExecWait: self._exec_wait,
            protocol.ExecKill: self._exec_kill,
            protocol.ExecStdin: self._exec_stdin,
            protocol.ExecList: self._exec_list,
            protocol.FileWrite: self._file_write,
            protocol.FileRead: self._file_read,
            protocol.FileList: self._file_list,
            protocol.FileStat: self._file_stat,
            protocol.FileDelete: self._file_delete,
            protocol.FileMkdir: self._file_mkdir,
            protocol.FileMove: self._file_move,
            protocol.RunRequest: self._run,
            protocol.Status: self._status,
            protocol.Shutdown: self._shutdown,
            protocol.Retire: self._retire,
        }

    async def __call__(self, call: Stream, request: protocol.Request) -> protocol.Frame:
        if isinstance(request, protocol.Status | protocol.ExecList):  # to look is not to use
            return await self._handlers[type(request)](call, request)
        self._sandbox.touch()
        try:
            return await self._handlers[type(request)](call, request)
        finally:
            self._sandbox.touch()

    # --- exec

    async def _exec(self, call: Stream, request: protocol.ExecRequest) -> protocol.Frame:
        one = self._execs.start(request)
        if request.delivery is protocol.Delivery.DETACHED:
            return protocol.ExecStarted(exec_id=one.id)
        try:
            async with anyio.create_task_group() as tasks:
                if request.stdin is protocol.StdinMode.PIPE:
                    tasks.start_soon(_feed, call, one)
                if request.delivery is protocol.Delivery.LIVE:
                    await _live(call, one)
                else:
                    await one.done()
                    for stream, kind in _KINDS.items():
                        await call.send(kind, one.log.kept(stream))
                tasks.cancel_scope.cancel()
        finally:  # the caller's going is the exec's end
            one.stop(EndCause.CANCELLED)
            with anyio.CancelScope(shield=True):
                ended = await one.done()
        self._execs.forget(one)
        return ended

    async def _exec_read(self, call: Stream, request: protocol.ExecRead) -> protocol.Frame:
        one = self._execs.find(request.exec_id)
        if request.since < 0 or request.max_bytes < 1:
            raise errors.InvalidRequest("since must be at least 0 and max_bytes at least 1")

        def look() -> Batch:
            return one.log.read(request.since, min(request.max_bytes, _MAX_READ_BYTES))

        with anyio.move_on_after(request.wait_ms / 1000):
            while not ((batch := look()).chunks or batch.expired or batch.closed):
                await one.news.wait()
        batch = look()
        for chunk in batch.chunks:
            await call.send(Kind.DATA, chunk.data)
        return protocol.ExecOutput(
            segments=[
                protocol.Segment(stream=OutputStream(chunk.stream), position=chunk.position, size_bytes=len(chunk.data))
                for chunk in batch.chunks
            ],
            next_position=batch.next,
            expired_bytes=batch.expired,
            ended=await one.done() if batch.closed else None,
        )

    async def _exec_wait(self, call: Stream, request: protocol.ExecWait) -> protocol.Frame:
        one = self._execs.find(request.exec_id)
        with anyio.move_on_after(None if request.timeout_ms is None else request.timeout_ms / 1000):
            await one.done()
        return protocol.ExecWaited(ended=one.ended)

    async def _exec_kill(self, call: Stream, request: protocol.ExecKill) -> protocol.Frame:
        one = self._execs.find(request.exec_id)
        if request.signal == _SIGKILL:
            one.stop(EndCause.KILLED)
            await one.done()
        elif 0 < request.signal < 65:
            one.signal(request.signal)
        else:
            raise errors.InvalidRequest(f"{request.signal} is not a signal")
        return protocol.Done()

    async def _exec_stdin(self, call: Stream, request: protocol.ExecStdin) -> protocol.Frame:
        one = self._execs.find(request.exec_id)
        if not one.stdin.is_open:
            raise errors.StdinClosed(f"the stdin of {one.id} is closed, or it was started without one")
        while (data := await call.receive()) is not None:
            await one.stdin.feed(data)
        if request.close:
            one.stdin.close()
        return protocol.Done()

    async def _exec_list(self, call: Stream, request: protocol.ExecList) -> protocol.Frame:
        return protocol.ExecListing(execs=self._execs.list())

    # --- files

    async def _file_write(self, call: Stream, request: protocol.FileWrite) -> protocol.Frame:
        upload = Upload(self._files, from_wire(request.path), request.mode, request.overwrite)
        while (data := await call.receive()) is not None:
            upload.add(data)
        return _done(upload.commit())

    async def _file_read(self, call: Stream, request: protocol.FileRead) -> protocol.Frame:
        content, entry = self._files.open(from_wire(request.path))
        if request.offset < 0 or (request.max_bytes is not None and request.max_bytes < 0):
            raise errors.InvalidRequest("offset and max_bytes may not be negative")
        end = len(content) if request.max_bytes is None else request.offset + request.max_bytes
        piece = content[request.offset : end]
        await call.send(Kind.DATA, piece)
        return protocol.FileSent(
            entry=_wire(entry),
            sent_bytes=len(piece),
            truncated=len(content) - request.offset > len(piece),
        )

    async def _file_list(self, call: Stream, request: protocol.FileList) -> protocol.Frame:
        found = self._files.list(from_wire(request.path), recursive=request.recursive, max_entries=request.max_entries)
        for at in range(0, len(found), protocol.PAGE_ENTRIES):
            page = found.entries[at : at + protocol.PAGE_ENTRIES]
            await call.event(protocol.FilePage(entries=[_wire(entry) for entry in page]))
        return protocol.FileListed(count=len(found), truncated=found.truncated)

    async def _file_stat(self, call: Stream, request: protocol.FileStat) -> protocol.Frame:
        return _done(self._files.stat(from_wire(request.path)))

    async def _file_delete(self, call: Stream, request: protocol.FileDelete) -> protocol.Frame:
        self._files.delete(from_wire(request.path), recursive=request.recursive)
        return protocol.Done()

    async def _file_mkdir(self, call: Stream, request: protocol.FileMkdir) -> protocol.Frame:
        return _done(self._files.mkdir(from_wire(request.path)))

    async def _file_move(self, call: Stream, request: protocol.FileMove) -> protocol.Frame:
        source, destination = from_wire(request.source), from_wire(request.destination)
        return _done(self._files.move(source, destination, overwrite=request.overwrite))

    # --- a run

    async def _run(self, call: Stream, request: protocol.RunRequest) -> protocol.Frame:
        for file in request.files:
            upload = Upload(self._files, from_wire(file.path), None, overwrite=True)
            left = file.size_bytes
            while left > 0:
                if (piece := await call.receive(left)) is None:
                    raise errors.InvalidRequest("the host sent less of a file than it said")
                upload.add(piece)
                left -= len(piece)
            upload.commit()
        ended = await self._exec(call, request.program)
        assert isinstance(ended, protocol.ExecEnded)  # a run is never detached
        skipped: list[protocol.ArtifactSkipped] = []
        room, count = request.max_artifact_bytes, request.max_artifacts
        for path, size in artifacts.matching(self._files, [from_wire(text) for text in request.artifacts]):
            if size > room or not count:
                skipped.append(protocol.ArtifactSkipped(path=to_wire(path), size_bytes=size))
                continue
            await call.event(protocol.ArtifactFound(path=to_wire(path), size_bytes=size))
            await call.send(Kind.DATA, self._files.open(path)[0])
            room, count = room - size, count - 1
        return protocol.RunEnded(
            ended=ended, skipped=skipped[: protocol.MAX_SKIPPED], skipped_count=len(skipped), unlisted=False
        )

    # --- the guest itself

    async def _status(self, call: Stream, request: protocol.Status) -> protocol.Frame:
        return self._sandbox.status()

    async def _shutdown(self, call: Stream, request: protocol.Shutdown) -> protocol.Frame:
        self._sandbox.end()
        return protocol.Done()

    async def _retire(self, call: Stream, request: protocol.Retire) -> protocol.Frame:
        if request.keep_ms < 0:
            raise errors.InvalidRequest("keep_ms must be at least 0")
        self._sandbox.retire(request.keep_ms / 1000)
        return protocol.Done()


async def _feed(call: Stream, one: Exec) -> None:
    """Pass the host's data on; a program that does not read its stdin is no error."""
    try:
        while (data := await call.receive()) is not None:
            await one.stdin.feed(data)
        one.stdin.close()
    except errors.StdinClosed:
        return


async def _live(call: Stream, one: Exec) -> None:
    """Send output as it comes; a caller that is too slow misses some, and is told how much."""
    await call.event(protocol.ExecStarted(exec_id=one.id))
    since = 0
    while True:
        batch = one.log.read(since, protocol.MAX_DATA_BYTES)
        since = batch.next
        if batch.expired:
            await call.event(protocol.OutputExpired(expired_bytes=batch.expired))
        for chunk in batch.chunks:
            await call.send(_KINDS[OutputStream(chunk.stream)], chunk.data)
        if batch.closed:
            return
        if not batch.chunks:
            await one.news.wait()


def _wire(entry: FileEntry) -> protocol.FileEntry:
    return protocol.FileEntry(
        path=to_wire(entry.path),
        kind=entry.kind,
        size_bytes=entry.size_bytes,
        mode=entry.mode,
        modified_ms=entry.modified_ms,
    )


def _done(entry: FileEntry) -> protocol.Frame:
    return protocol.FileDone(entry=_wire(entry))
