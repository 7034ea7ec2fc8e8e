"""Files of the store for one run, and the store as the place for artifacts of it that are too large to be returned."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType

from .. import errors
from ..asked import short
from ..config import Limits, Settings
from ..results import PublishedArtifact
from .objects import StagedFile
from .reach import Place, Reach
from .store import Store, open_store
from .writing import Writing


@dataclass(frozen=True, slots=True)
class RunInput:
    """A file of the store that a run gets. A change between the look at its record and its reading is noticed."""

    settings: Settings
    file: StagedFile

    @property
    def size_bytes(self) -> int:
        return self.file.size_bytes

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncIterator[bytes]]:
        async with open_store(self.settings) as store, store.reading(self.file) as pieces:
            yield pieces


async def run_inputs(settings: Settings, reach: Reach, stage: Mapping[str, str], limits: Limits) -> dict[str, RunInput]:
    """The files of `stage`, path -> key, by their records.

    Raises:
        PolicyError, StagingError: one may not be read, or is not there.
        FileTooLarge, WorkspaceFull: they do not fit; nothing was read.
    """
    out: dict[str, RunInput] = {}
    if not stage:
        return out
    places = {path: reach.readable(key) for path, key in stage.items()}
    async with open_store(settings) as store:
        for path, place in places.items():
            file = await store.info(place)
            most = min(settings.staging_max_bytes, limits.max_file_size_bytes or settings.staging_max_bytes)
            if file.size_bytes > most:
                raise errors.FileTooLarge(f"{short(file.name)} has {file.size_bytes} bytes; the limit is {most}")
            out[path] = RunInput(settings, file)
    size = sum(found.size_bytes for found in out.values())
    if limits.workspace_mb is not None and size > limits.workspace_mb << 20:
        raise errors.WorkspaceFull(f"the staged files have {size} bytes, and the workspace {limits.workspace_mb} MB")
    return out


class RunPublisher:
    """Puts artifacts of one run into the store, under its name. Connects when there is something to publish."""

    def __init__(self, settings: Settings, reach: Reach, run: str, limits: Limits) -> None:
        self._settings, self._reach, self._run = settings, reach, run
        room = settings.staging_max_bytes if limits.workspace_mb is None else limits.workspace_mb << 20
        self.max_bytes = min(settings.staging_max_bytes, room)
        self._connection, self._file = AsyncExitStack(), AsyncExitStack()
        self._store: Store | None = None
        self._writing: tuple[str, Place, Writing] | None = None

    async def __aenter__(self) -> RunPublisher:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.give_up()
        await self._connection.aclose()

    async def begin(self, path: str) -> None:
        place = self._reach.writable(f"runs/{self._run}/{path}")
        if self._store is None or self._store.link.lost:
            await self._connection.aclose()
            self._store = await self._connection.enter_async_context(open_store(self._settings))
        self._writing = (path, place, await self._file.enter_async_context(self._store.writing(place)))

    async def add(self, data: bytes) -> None:
        assert self._writing is not None
        await self._writing[2].add(data)

    async def end(self) -> PublishedArtifact:
        assert self._writing is not None
        path, place, writing = self._writing
        file = await writing.commit()
        await self.give_up()
        return PublishedArtifact(path, self._reach.shown(place), file.bucket, file.size_bytes, file.digest)

    async def give_up(self) -> None:
        """Remove what is not committed."""
        self._writing = None
        await self._file.aclose()
