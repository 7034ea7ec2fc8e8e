"""From a prompt file to an agent's tools: mode, policy and engine are decided before anything is started."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import errors, factory, frontmatter
from .. import secrets as secret_values
from ..abc import Mode
from ..config import SandboxConfig, settings
from ..mistakes import shown
from ..policy import Request, clamp
from . import run
from .adapters import load
from .offer import ExecutionContext, Offer
from .session import CodeTools
from .tool import Result, Tool, failure

_LOGGER = logging.getLogger("holdfast")


class Toolset(Sequence[Tool]):
    """An agent's tools. Close it when the agent is done: it lets go of its sessions."""

    def __init__(self, tools: Sequence[Tool], code: CodeTools | None = None, offer: Offer | None = None) -> None:
        self._tools = tuple(tools)
        self._code = code
        self.offer = offer
        """what was asked, allowed and decided; None: the agent has no sandbox"""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            found = next((tool for tool in self._tools if tool.name == index), None)
            if found is None:
                raise KeyError(index)
            return found
        return self._tools[index]

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)

    async def call(self, name: str, arguments: dict[str, Any] | None = None) -> Result:
        """Call a tool by its name; a name that does not exist is a result too."""
        tool = next((one for one in self if one.name == name), None)
        if tool is None:
            known = ", ".join(one.name for one in self) or "none"
            return failure(errors.InvalidRequest(f"there is no such tool, {shown(name)}; there are: {known}"))
        return await tool.call(arguments)

    async def aclose(self) -> None:
        if self._code is not None:
            await self._code.aclose()

    def close(self) -> None:
        """`aclose`, for callers without an event loop."""
        from ..sync import wait_for

        wait_for(self.aclose)

    async def __aenter__(self) -> Toolset:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> Toolset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- in the form of a framework; where its package is missing, the error names the extra

    def as_openai(self, api: str = "chat") -> list[dict[str, Any]]:
        """As OpenAI's API takes tools: `chat` completions, or `responses`."""
        return load("openai").specifications(self, api)  # type: ignore[no-any-return]

    def as_anthropic(self) -> list[dict[str, Any]]:
        """As Anthropic's API takes tools."""
        return load("anthropic").specifications(self)  # type: ignore[no-any-return]

    def as_mcp(self) -> Any:
        """A server of the official MCP SDK; `holdfast mcp` serves it."""
        return load("mcp").server(self)

    def as_langchain(self) -> list[Any]:
        """LangChain tools."""
        return load("langchain").tools(self)  # type: ignore[no-any-return]

    def as_openai_agents(self) -> list[Any]:
        """Function tools of the OpenAI Agents SDK."""
        return load("openai_agents").tools(self)  # type: ignore[no-any-return]

    def as_genkit(self, ai: Any) -> list[Any]:
        """Tools of Genkit, registered with `ai`; pass them, or their names, to `ai.generate`."""
        return load("genkit").tools(self, ai)  # type: ignore[no-any-return]


async def toolset(
    agent: str | Path | SandboxConfig | None,
    *,
    context: ExecutionContext | None = None,
    engine: str | None = None,
) -> Toolset:
    """The tools of an agent: of its prompt file, or of a config. Nothing is started yet.

    Raises:
        ConfigError: the file or a setting is wrong; says where.
        PolicyError, ImageNotAllowed: the operator does not allow what is asked for.
        EngineUnavailable: no engine here can do it; says which lacks what.
    """
    config = agent if isinstance(agent, SandboxConfig | None) else _asked(agent)
    if config is None:
        return Toolset(())
    found = settings()
    decision = clamp(Request.of(config), found)
    mode = Mode(config.mode)
    packages = config.packages if mode is Mode.COMPUTE else ()
    needs = factory.needs(mode, image=config.image_name, network=config.wants_network, packages=packages)
    chosen = await factory.choose(engine, mode, needs)
    values = secret_values.resolve(config.secrets, found)
    offer = Offer(
        config=config,
        settings=found,
        decision=decision,
        engine=chosen.name,
        context=context or ExecutionContext(),
        secrets=values,
        masker=secret_values.Masker(values),
    )
    if mode is Mode.COMPUTE:
        return Toolset(run.tools(offer), offer=offer)
    code = CodeTools(offer)
    return Toolset(code.tools(), code, offer)


def _asked(file: str | Path) -> SandboxConfig | None:
    prompt = frontmatter.load(file)
    for note in prompt.notes:
        _LOGGER.warning("%s: %s", prompt.name, note)
    return prompt.sandbox
