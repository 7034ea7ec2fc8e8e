"""An MCP server over a toolset, by the official SDK: `toolset.as_mcp()`; `holdfast mcp` serves it.

A tool's result goes out as structured content and as text. What is an error of ours is a result with `isError`, which
a model can read and mend; a program that fails is none. A call that is cancelled, or whose client has gone away, is
cancelled in the sandbox too.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)
from mcp_types import Tool as Listed

from ... import __version__, errors
from ..tool import Result, Tool, failure

if TYPE_CHECKING:
    from ..toolset import Toolset

Context = ServerRequestContext[Any, Any]
GONE = "holdfast.gone"
"""in the scope of an HTTP request: the event that its client has gone away"""
_PROGRESS_SECONDS = 1.0
_LONG_TEXT = 300_000
"""The same goes out twice, and clients bound a message; the Python SDK's takes 1 MB over HTTP."""
_CUT_CHARS = 20_000
_STATE = "holdfast.tools"


def server(tools: Toolset) -> Server[Any]:
    """A server whose clients share this toolset. Close the toolset when the server has ended."""

    async def shared(_: Context) -> Toolset:
        return tools

    return _server(tools, shared)


def server_of_connections(tools: Sequence[Tool], make: Callable[[], Awaitable[Toolset]]) -> Server[Any]:
    """A server that makes a toolset for each connection, and closes it when the connection ends.

    `tools` are those that are listed; each connection's own have the same names and schemas.
    """

    async def of_connection(context: Context) -> Toolset:
        connection = context.session._connection  # made for this, and not yet reachable in another way (mcp 2.3)
        if _STATE not in connection.state:
            made = await make()  # another call of this connection may be here too; nothing is started by it
            if connection.state.setdefault(_STATE, made) is made:
                connection.exit_stack.push_async_callback(made.aclose)
        found: Toolset = connection.state[_STATE]
        return found

    return _server(tools, of_connection)


def _server(tools: Sequence[Tool], find: Callable[[Context], Awaitable[Toolset]]) -> Server[Any]:
    listed = [_listed(tool) for tool in tools]

    async def on_list(_: Context, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=listed)

    async def on_call(context: Context, asked: CallToolRequestParams) -> CallToolResult:
        try:
            result = await _call(await find(context), context, asked)
        except errors.SandboxError as error:
            result = failure(error)
        return CallToolResult(
            content=[TextContent(type="text", text=_text(result))],
            structured_content=result,
            is_error="error" in result,
        )

    return Server("holdfast", version=__version__, on_list_tools=on_list, on_call_tool=on_call)


def _listed(tool: Tool) -> Listed:
    return Listed(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
    )


def _text(result: Result) -> str:
    """The result for clients that know no structured content; of a very long one, the beginnings of its strings."""
    whole = json.dumps(result, ensure_ascii=False)
    return whole if len(whole) <= _LONG_TEXT else json.dumps(_cut(result), ensure_ascii=False)


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cut(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_cut(each) for each in value]
    if isinstance(value, str) and len(value) > _CUT_CHARS:
        return f"{value[:_CUT_CHARS]}\n[...truncated at {_CUT_CHARS} chars; the structured content has all of it...]"
    return value


async def _call(tools: Toolset, context: Context, asked: CallToolRequestParams) -> Result:
    result: Result = failure(errors.SessionLost("the client went away, and the call was cancelled"))
    async with anyio.create_task_group() as tasks:
        if context.meta and "progress_token" in context.meta:
            tasks.start_soon(_tell_progress, context, asked.name)
        if context.request is not None and (gone := context.request.scope.get(GONE)) is not None:
            tasks.start_soon(_cancel_when, gone, tasks.cancel_scope)
        result = await tools.call(asked.name, asked.arguments)
        tasks.cancel_scope.cancel()
    return result


async def _tell_progress(context: Context, name: str) -> None:
    """That a call goes on, for a client that would give it up otherwise. There is no total: nobody knows it."""
    started = anyio.current_time()
    while True:
        await anyio.sleep(_PROGRESS_SECONDS)
        seconds = round(anyio.current_time() - started, 1)
        await context.session.report_progress(seconds, message=f"{name} has been running for {seconds:.0f} s")


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
