"""What runs start from: an image with its packages and the guest, prepared once for each session and then reused."""

from __future__ import annotations

from ... import errors
from ...guest.binary import guest_path
from . import cli
from .installer import with_packages
from .query import QueryFailed
from .session import DaggerSession, leaf, telling

FOLDER = "/.holdfast"
GUEST = f"{FOLDER}/guest"
ANSWER = f"{FOLDER}/out/answer"
_PULL_SECONDS = 900.0
_ARCHITECTURES = {"linux/amd64": "amd64", "linux/arm64": "arm64", "linux/arm64/v8": "arm64"}


async def greet(session: DaggerSession) -> tuple[str, str]:
    """The engine's version and the guest's architecture there; the first call on a session asks.

    Raises:
        EngineUnavailable: the engine is of another release line, or of a platform that the guest is not built for.
    """
    if "engine" not in session.prepared:
        found = await session.query("{version defaultPlatform}")
        version, platform = str(found["version"]), str(found["defaultPlatform"])
        if reason := cli.skew(version):
            raise errors.EngineUnavailable(reason)
        if platform not in _ARCHITECTURES:
            raise errors.EngineUnavailable(f"the Dagger engine is {platform}; the guest is built for amd64 and arm64")
        session.prepared["arch"], session.prepared["engine"] = _ARCHITECTURES[platform], version
    return session.prepared["engine"], session.prepared["arch"]


async def base(session: DaggerSession, image: str, runtime: str, packages: tuple[str, ...]) -> str:
    """The id of a container with the image, the packages and the guest.

    Raises:
        ImageNotFound: no registry that the engine can reach has it.
        PackagesFailed: in the installer's own words.
    """
    key = (image, runtime, packages)
    if key not in session.prepared:
        _, arch = await greet(session)
        bare = await _pulled(session, image)
        if packages:
            bare = await with_packages(session, bare, runtime, packages)
        session.prepared[key] = await _with_guest(session, bare, arch)
    return session.prepared[key]


async def _pulled(session: DaggerSession, image: str) -> str:
    # As root: the guest becomes somebody else by itself. From `/`: an image's own folder may be anything.
    text = """
        query($image: String!) { container { from(address: $image) { withUser(name: "0:0") {
            withWorkdir(path: "/") { withoutEntrypoint { withoutDefaultArgs { sync } } } } } } }"""
    try:
        return leaf(await session.query(text, {"image": image}, _PULL_SECONDS))
    except QueryFailed as error:
        raise errors.ImageNotFound(f"the image {image} cannot be had: {telling(error.message)}") from error
    except TimeoutError:
        raise errors.ImageNotFound(f"the image {image} did not arrive within {_PULL_SECONDS:.0f} s") from None


async def _with_guest(session: DaggerSession, bare: str, arch: str) -> str:
    if "guest" not in session.prepared:
        session.prepared["guest"] = await session.host_file(guest_path(arch))
    text = f"""
        query($bare: ContainerID!, $guest: ID!) {{ loadContainerFromID(id: $bare) {{
            withFile(path: "{GUEST}", source: $guest, permissions: {0o511}) {{
                withNewFile(path: "{FOLDER}/out/.keep", contents: "") {{ sync }} }} }} }}"""
    return leaf(await session.query(text, {"bare": bare, "guest": session.prepared["guest"]}))
