"""`holdfast mcp`: an agent's tools for any MCP client, over stdio or HTTP."""

from __future__ import annotations

import ipaddress
import json
import os
import secrets
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import errors
from . import _complete
from ._common import Command, engine_option, execute, say

if TYPE_CHECKING:
    from ..config import SandboxConfig
    from ..tools.offer import ExecutionContext

TOKEN = "HOLDFAST_MCP_TOKEN"
_MIN_TOKEN = 16
_HOST, _PORT = "127.0.0.1", 8765


@click.command(
    "mcp",
    cls=Command,
    examples="""
        holdfast mcp
        holdfast mcp agent.prompt
        holdfast mcp coder.prompt --workflow wf_1
        holdfast mcp --mode code --runtime node
        holdfast mcp --print-config
        holdfast mcp agent.prompt --http --port 8765
    """,
)
@click.argument("file", metavar="[FILE]", required=False, shell_complete=_complete.prompts)
@click.option("--mode", type=click.Choice(["compute", "code"]), help="Without FILE: compute, or code.")
@click.option("-r", "--runtime", metavar="RUNTIME", help="Without FILE: python, or node or bash.")
@click.option("--workflow", metavar="ID", envvar="HOLDFAST_WORKFLOW", help="Workflow whose session the clients share.")
@click.option("--agent-run", metavar="ID", help="Run of the agent itself.")
@engine_option
@click.option("--http", "over_http", is_flag=True, help="Serve HTTP, and not stdin and stdout.")
@click.option("--host", metavar="ADDRESS", help=f"Address to listen at; else {_HOST}.")
@click.option(
    "--port", metavar="N", type=click.IntRange(0, 65535), help=f"Port; else {_PORT}. 0 takes any that is free."
)
@click.option("--allow-host", metavar="NAME", multiple=True, help="Another name under which clients reach it.")
@click.option("--print-config", is_flag=True, help="Print what a client's configuration needs, and end.")
def command(
    file: str | None,
    mode: str | None,
    runtime: str | None,
    workflow: str | None,
    agent_run: str | None,
    engine: str | None,
    over_http: bool,
    host: str | None,
    port: int | None,
    allow_host: tuple[str, ...],
    print_config: bool,
) -> int:
    """Serve an agent's tools to MCP clients.

    FILE is a prompt file; without it, the tools are those of `sandbox: python`. Over HTTP clients show the token
    in HOLDFAST_MCP_TOKEN; without that variable one is made, and printed. It ends when its client closes stdin,
    or by Ctrl-C.
    """
    if file and (mode or runtime):
        raise click.UsageError("--mode and --runtime are for a server without FILE; FILE says both itself")
    if not over_http and (host or port is not None or allow_host):
        raise click.UsageError("--host, --port and --allow-host are for --http")
    host, port = host or _HOST, _PORT if port is None else port
    if print_config:
        click.echo(json.dumps(_configuration(file, over_http, host, port), indent=2))
        return 0

    async def work() -> int:
        from ..tools.offer import ExecutionContext

        agent = file or _default(mode, runtime)
        context = ExecutionContext(workflow_run_id=workflow, agent_run_id=agent_run)
        if over_http:
            await _serve_http(agent, context, engine, host, port, allow_host)
        else:
            await _serve_stdio(agent, context, engine)
        return 0

    return execute(work)


def _default(mode: str | None, runtime: str | None) -> SandboxConfig:
    from pydantic import ValidationError

    from ..config import SandboxConfig

    try:
        return SandboxConfig.model_validate({"mode": mode or "compute", "runtime": runtime or "python"})
    except ValidationError as error:
        raise errors.InvalidRequest(f"--runtime {runtime}: {error.errors()[0]['msg']}") from error


def _require_sdk() -> None:
    from ..tools.adapters import load

    try:
        load("mcp")
    except ImportError as error:
        raise errors.InvalidRequest(str(error)) from error


async def _serve_stdio(agent: str | SandboxConfig, context: ExecutionContext, engine: str | None) -> None:
    _require_sdk()
    from ..tools.adapters import mcp_stdio
    from ..tools.toolset import toolset

    async with await toolset(agent, context=context, engine=engine) as tools:
        _require_tools(agent, len(tools))
        if os.isatty(0):
            say("serving MCP on stdin and stdout, for a client that starts this command; Ctrl-C ends it")
        await mcp_stdio.serve(tools.as_mcp())


async def _serve_http(
    agent: str | SandboxConfig,
    context: ExecutionContext,
    engine: str | None,
    host: str,
    port: int,
    allow_host: tuple[str, ...],
) -> None:
    given = os.environ.pop(TOKEN, "")  # no process that we start needs it
    token = _checked(given, host, allow_host) or secrets.token_urlsafe(32)
    _require_sdk()
    from ..tools.adapters import mcp, mcp_http
    from ..tools.toolset import Toolset, toolset

    async def make() -> Toolset:
        return await toolset(agent, context=context, engine=engine)

    async with await make() as tools:
        _require_tools(agent, len(tools))
        stateful = tools.offer is not None and tools.offer.config.mode == "code"
        server = mcp.server_of_connections(tools, make) if stateful else tools.as_mcp()
        with _listen(host, port) as listener:
            port = listener.getsockname()[1]
            say(f"serving MCP at {_url(host, port)}; Ctrl-C ends it")
            if not given:
                say(f"token: {token}")
                say(f"made for this time; {TOKEN} gives it one that stays, and --print-config shows how clients use it")
            hosts = mcp_http.names(host, port, allow_host)
            await mcp_http.serve(server, listener, token=token, hosts=hosts, stateful=stateful)


def _require_tools(agent: str | SandboxConfig, count: int) -> None:
    if not count:
        raise errors.InvalidRequest(f"{agent} has no sandbox in its frontmatter, so its agent has no tools")


def _checked(token: str, host: str, allow_host: tuple[str, ...]) -> str:
    if token and (len(token) < _MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token):
        raise errors.InvalidRequest(f"{TOKEN} must have at least {_MIN_TOKEN} printable ASCII characters and no space")
    if not _is_loopback(host):
        if not token:
            raise errors.InvalidRequest(f"--host {host} can be reached from other machines; set {TOKEN} first")
        if host in ("0.0.0.0", "::") and not allow_host:
            raise errors.InvalidRequest(f"--host {host} is no name; say how clients reach it: --allow-host NAME")
    return token


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server(found[0][4][:2], family=found[0][0])
    except OSError as error:
        raise errors.InvalidRequest(f"cannot listen at {host}, port {port}: {error.strerror}") from error


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"


def _configuration(file: str | None, over_http: bool, host: str, port: int) -> dict[str, Any]:
    """As most clients write it, in `mcp.json` or the like: what starts this very call, or reaches it."""
    if over_http:
        found: dict[str, Any] = {
            "type": "http",
            "url": _url(host, port),
            "headers": {"Authorization": f"Bearer ${{{TOKEN}}}"},
        }
    else:
        words = [str(Path(word).resolve()) if word == file else word for word in sys.argv[1:]]
        found = {"command": "holdfast", "args": [word for word in words if word != "--print-config"]}
    return {"mcpServers": {"holdfast": found}}
