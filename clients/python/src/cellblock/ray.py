"""Cells on the nodes of a Ray cluster.

`Cluster` has one server on each node: `run` and `map` spread code over them, and a context stays
on its node. `SandboxRuntime` is Ray's own interface of sandboxes (`ray.experimental.sandbox`),
with cells in place of gVisor.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional, Union

import ray
from ray.exceptions import RayActorError
from ray.experimental.sandbox.backend.base import (
    BaseSandboxBackend,
    ExecResult,
    SandboxStatus,
)
from ray.experimental.sandbox.config import SandboxConfig, parse_memory_bytes
from ray.experimental.sandbox.exceptions import (
    SandboxCreationError,
    SandboxExecError,
    SandboxNotFoundError,
    SandboxTimeoutError,
)
from ray.experimental.sandbox.runtime import SandboxRuntime as _SandboxRuntime
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .aio import Context, Server
from .blocking import Sandbox
from .errors import CellblockError, Lost, NotFound, from_failure
from .link import Json
from .results import Execution, Run
from .server import Server as BlockingServer

#: Calls of one node that are under way at once, the server's queue included.
CONCURRENCY = 1000
#: Seconds to wait where a server is busy and does not say for how long.
BREATH = 0.1


class NodeLost(Lost):
    """The node has gone, and with it what ran there. Whether it ran to its end is unknown; to try
    again runs it on another node."""


class _Node:
    """A server on one node, as an actor. Errors are values, since they cross processes."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._server = Server(**options)
        self._contexts: dict[str, Context] = {}

    async def start(self) -> Json:
        return await self._answer(self._start())

    async def run(self, code: Any, language: str, options: Mapping[str, Any]) -> Json:
        return await self._answer(self._run(code, language, options))

    async def create(self, language: str, options: Mapping[str, Any]) -> Json:
        return await self._answer(self._create(language, options))

    async def execute(self, id: str, code: Any, options: Mapping[str, Any]) -> Json:
        return await self._answer(self._execute(id, code, options))

    async def delete(self, id: str) -> Json:
        return await self._answer(self._delete(id))

    async def close(self) -> None:
        await self._server.close()

    async def _start(self) -> Json:
        await self._server.start()
        return await self._server.status()

    async def _run(self, code: Any, language: str, options: Mapping[str, Any]) -> Json:
        run = await self._server.run(code, language, **options)
        return {"record": run.record, "start": run.start}

    async def _create(self, language: str, options: Mapping[str, Any]) -> Json:
        context = await self._server.context(language, **options)
        self._contexts[context.id] = context
        return {"context": context.id}

    async def _execute(self, id: str, code: Any, options: Mapping[str, Any]) -> Json:
        if id not in self._contexts:
            raise NotFound(f"there is no context {id} on this node")
        run = await self._contexts[id].run(code, **options)
        return {"record": run.record, "execution": run.number, "state": run.state, "why": run.why}

    async def _delete(self, id: str) -> None:
        context = self._contexts.pop(id, None)
        if context is not None:
            await context.delete()

    async def _answer(self, call: Any) -> Json:
        try:
            return {"result": await call}
        except CellblockError as error:
            wait = error.retry_after
            failure = {
                "code": error.code,
                "message": error.message,
                "hint": error.hint,
                "retry_after_ms": None if wait is None else wait * 1000,
            }
            return {"error": failure}


class _Member:
    """A node as the cluster sees it."""

    def __init__(self, name: str, actor: Any, room: int) -> None:
        self.name, self.actor, self.room = name, actor, room
        self.busy = 0
        #: No call is sent before this time (`time.monotonic`).
        self.resumes = 0.0


class Cluster:
    """One server on each node of the Ray cluster that this process is connected to.

    ``nodes`` are the ids of nodes, all that are alive when it is left out; options are those of
    cellblock-serve(1), which must be installed on each node or come with this package's wheel.
    """

    def __init__(self, *, nodes: Optional[Sequence[str]] = None, **options: Any) -> None:
        # Ray's functions have no types, or those of their decorators.
        untyped: Any = ray
        alive = [node["NodeID"] for node in untyped.nodes() if node["Alive"]]
        kind = untyped.remote(_Node)
        actors = {}
        for name in nodes if nodes is not None else alive:
            strategy = NodeAffinitySchedulingStrategy(name, soft=False)
            settings = {"num_cpus": 0, "max_restarts": 0, "max_concurrency": CONCURRENCY}
            actors[name] = kind.options(scheduling_strategy=strategy, **settings).remote(options)
        begun = {name: actor.start.remote() for name, actor in actors.items()}
        self._members: dict[str, _Member] = {}
        for name, answer in begun.items():
            status = _result(ray.get(answer))
            self._members[name] = _Member(name, actors[name], status["cells"]["limit"])

    @property
    def nodes(self) -> list[str]:
        """The nodes that have a server."""
        return list(self._members)

    def run(self, code: Any, language: str = "python", **options: Any) -> Run:
        """Runs code in a cell of its own, on the node that has most room."""
        [run] = self.map([code], language, **options)
        assert isinstance(run, Run)
        return run

    def map(
        self,
        codes: Iterable[Any],
        language: str = "python",
        *,
        at_most_once: bool = False,
        return_exceptions: bool = False,
        **options: Any,
    ) -> Iterator[Union[Run, CellblockError]]:
        """Runs each code in a cell of its own, and yields the runs in the order of the codes.

        No more codes are taken from the iterator than there is room for on the nodes, and a
        busy node gets none for as long as it says. What ran on a node that is lost runs again on
        another one, unless ``at_most_once`` is given: then it is a NodeLost. Errors are
        raised, or yielded in their places with ``return_exceptions``.
        """
        waiting = deque[tuple[int, Any]]()
        source = enumerate(codes)
        under_way: dict[Any, tuple[_Member, int, Any]] = {}
        done: dict[int, Union[Run, CellblockError]] = {}
        is_over = False
        try:
            for number in itertools.count():
                while number not in done:
                    # What is done but not yet taken counts, so that slow codes hold up the others.
                    while not is_over and len(waiting) + len(under_way) + len(done) < self._room():
                        try:
                            waiting.append(next(source))
                        except StopIteration:
                            is_over = True
                    if is_over and not waiting and not under_way and not done:
                        return
                    self._send(waiting, under_way, language, options)
                    self._take(waiting, under_way, done, at_most_once)
                outcome = done.pop(number)
                if isinstance(outcome, CellblockError) and not return_exceptions:
                    raise outcome
                yield outcome
        finally:
            # After an error, or when the caller takes no more runs, pending calls are cancelled.
            for member, _, _ in under_way.values():
                member.busy -= 1
            for answer in under_way:
                ray.cancel(answer)

    def context(self, language: str = "python", **options: Any) -> ClusterContext:
        """Creates a context on the node that has most room. It stays there."""
        while self._members:
            # Where none has room, the one with the shortest queue.
            member = min(self._members.values(), key=lambda member: member.busy / member.room)
            try:
                context = _result(_get(member.actor.create.remote(language, options)))["context"]
            except NodeLost:
                # If it had created a context, that has ended with it.
                self._forget(member)
                continue
            member.busy += 1
            return ClusterContext(self, member, context)
        raise NodeLost("no node is left")

    def close(self) -> None:
        """Ends the servers."""
        for member in self._members.values():
            try:
                ray.get(member.actor.close.remote())
                ray.kill(member.actor)
            except RayActorError:
                # It has gone before.
                pass
        self._members.clear()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _forget(self, member: _Member) -> None:
        self._members.pop(member.name, None)

    def _room(self) -> int:
        return sum(member.room for member in self._members.values())

    def _freest(self) -> Optional[_Member]:
        now = time.monotonic()
        free = [m for m in self._members.values() if m.busy < m.room and m.resumes <= now]
        return min(free, key=lambda member: member.busy / member.room, default=None)

    def _send(
        self,
        waiting: deque[tuple[int, Any]],
        under_way: dict[Any, tuple[_Member, int, Any]],
        language: str,
        options: Mapping[str, Any],
    ) -> None:
        while waiting and (member := self._freest()) is not None:
            number, code = waiting.popleft()
            answer = member.actor.run.remote(code, language, options)
            member.busy += 1
            under_way[answer] = (member, number, code)

    def _take(
        self,
        waiting: deque[tuple[int, Any]],
        under_way: dict[Any, tuple[_Member, int, Any]],
        done: dict[int, Union[Run, CellblockError]],
        at_most_once: bool,
    ) -> None:
        if not self._members:
            for _, number, _ in under_way.values():
                done[number] = NodeLost("no node is left")
            done.update((number, NodeLost("no node is left")) for number, _ in waiting)
            waiting.clear()
            under_way.clear()
            return
        if not under_way:
            time.sleep(BREATH)
            return
        ready, _ = ray.wait(list(under_way), timeout=BREATH if waiting else None)
        for answer in ready:
            member, number, code = under_way.pop(answer)
            member.busy -= 1
            try:
                done[number] = Run(_result(_get(answer)))
            except NodeLost as error:
                self._forget(member)
                if at_most_once:
                    done[number] = error
                else:
                    waiting.appendleft((number, code))
            except CellblockError as error:
                if error.code == "busy":
                    # It has not begun, so it may run elsewhere in any case.
                    member.resumes = time.monotonic() + (error.retry_after or BREATH)
                    waiting.appendleft((number, code))
                else:
                    done[number] = error


class ClusterContext:
    """A context on one node. When the node is lost, so are its variables: calls raise NodeLost."""

    def __init__(self, cluster: Cluster, member: _Member, id: str) -> None:
        self._cluster, self._member = cluster, member
        self._is_deleted = False
        #: Its name on its node.
        self.id = id

    @property
    def node(self) -> str:
        """The node that it is on."""
        return self._member.name

    def run(self, code: Any, **options: Any) -> Execution:
        """Executes code: see `cellblock.Context.run`."""
        return Execution(self._ask(self._member.actor.execute.remote(self.id, code, options)))

    def delete(self) -> None:
        """Ends it, if it was not ended before."""
        if self._is_deleted:
            return
        self._is_deleted = True
        self._member.busy -= 1
        self._ask(self._member.actor.delete.remote(self.id))

    def _ask(self, answer: Any) -> Json:
        try:
            return _result(_get(answer))
        except NodeLost:
            self._cluster._forget(self._member)
            raise

    def __enter__(self) -> ClusterContext:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.delete()
        except CellblockError:
            pass


def _get(answer: Any) -> Json:
    try:
        found: Json = ray.get(answer)
        return found
    except RayActorError as error:
        raise NodeLost(f"the node is lost: {error}") from error


def _result(answer: Json) -> Json:
    if "error" in answer:
        raise from_failure(answer["error"])
    return answer["result"] or {}


class SandboxRuntime(_SandboxRuntime):
    """Ray's runtime of sandboxes, with cells. An image is the name of a rootfs (`cellblock
    rootfs list`), or ``host``. Options are those of cellblock-serve(1)."""

    def __init__(self, **options: Any) -> None:
        # The usual one makes a backend of gVisor.
        images: Any = _Images()
        self._cells = CellblockSandboxBackend(images, **options)
        backend: Any = self._cells
        self._image_manager = images
        self._backend = backend
        self._ttl_timers: Any = {}

    def close(self) -> None:
        """Ends the servers and all sandboxes."""
        self._cells.close()


class _Images:
    """The store has the images."""

    def pull_image(self, image: str, timeout_seconds: float = 0) -> str:
        return image


class CellblockSandboxBackend(BaseSandboxBackend):
    """A backend of `ray.experimental.sandbox`. What a cell cannot be, such as a container
    with capabilities or a writable root, is a SandboxCreationError."""

    def __init__(self, image_manager: Any = None, **options: Any) -> None:
        super().__init__(image_manager or _Images())
        self._options = {"cpu_time": "none", "idle": "24h", "memory": "4G", **options}
        self._servers: dict[str, BlockingServer] = {}
        self._sandboxes: dict[str, tuple[Sandbox, SandboxConfig]] = {}

    def create_sandbox(self, config: SandboxConfig) -> str:
        limits: dict[str, Any] = {}
        memory = parse_memory_bytes(config.memory)
        if memory:
            limits["memory"] = memory
        if config.cpu:
            limits["cpus"] = config.cpu
        wrong = _what_cells_have_not(config, bool(self._options.get("net")))
        if wrong:
            raise SandboxCreationError(wrong)
        try:
            if config.image not in self._servers:
                server = BlockingServer(**{"rootfs": config.image, **self._options})
                self._servers[config.image] = server
            server = self._servers[config.image]
            sandbox = Sandbox(server=server, env=config.env, limits=limits)
            if config.workdir:
                sandbox.exec(["mkdir", "-p", config.workdir])
        except (CellblockError, OSError) as error:
            raise SandboxCreationError(str(error)) from error
        self._sandboxes[sandbox.id] = (sandbox, config)
        return sandbox.id

    def delete_sandbox(self, sandbox_id: str) -> None:
        sandbox, _ = self._find(sandbox_id)
        del self._sandboxes[sandbox_id]
        sandbox.close()

    def exec_command(
        self,
        sandbox_id: str,
        command: Union[str, list[str]],
        timeout: Optional[float] = None,
        cwd: Optional[str] = None,
        env: Optional[dict[str, str]] = None,
        shell: Optional[str] = None,
        user: Optional[str] = None,
    ) -> ExecResult:
        sandbox, config = self._find(sandbox_id)
        if user is not None:
            raise SandboxExecError(f"a cell has one user, and it is not {user!r}")
        if isinstance(command, str):
            command = [shell or "/bin/bash", "-c", command]
        began = time.monotonic()
        try:
            cwd = cwd or config.workdir
            outcome = sandbox.exec(command, timeout=timeout, cwd=cwd, env=env)
        except TimeoutError as error:
            raise SandboxTimeoutError(str(error)) from error
        except (CellblockError, OSError) as error:
            raise SandboxExecError(str(error)) from error
        stdout, stderr = (s.decode(errors="replace") for s in (outcome.stdout, outcome.stderr))
        return ExecResult(outcome.status, stdout, stderr, time.monotonic() - began)

    def write_file(
        self, sandbox_id: str, path: str, content: Union[str, bytes], append: bool = False
    ) -> None:
        sandbox, _ = self._find(sandbox_id)
        new = content.encode() if isinstance(content, str) else content
        sandbox.write(path, new, append=append)

    def read_file(self, sandbox_id: str, path: str) -> bytes:
        return self._find(sandbox_id)[0].read(path)

    def get_status(self, sandbox_id: str) -> SandboxStatus:
        if sandbox_id not in self._sandboxes:
            return SandboxStatus.TERMINATED
        try:
            self._sandboxes[sandbox_id][0].exec(["true"])
        except (CellblockError, OSError):
            return SandboxStatus.ERROR
        return SandboxStatus.RUNNING

    def close(self) -> None:
        """Ends the servers and all sandboxes."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        self._sandboxes.clear()

    def _find(self, sandbox_id: str) -> tuple[Sandbox, SandboxConfig]:
        if sandbox_id not in self._sandboxes:
            raise SandboxNotFoundError(f"there is no sandbox {sandbox_id}")
        return self._sandboxes[sandbox_id]


def _what_cells_have_not(config: SandboxConfig, has_network: bool) -> Optional[str]:
    if config.capabilities:
        return "capabilities: a cell has none"
    if not config.readonly:
        return "readonly: a cell can write to /workspace, /tmp and /dev/shm only"
    if config.dns:
        return "dns: names are resolved outside of the cell"
    if config.network not in ("none", "public"):
        return f"network: {config.network!r} is not available; use 'none', or 'public'"
    if config.network == "public" and not has_network:
        return "network: the runtime was made without hosts, such as net=['allow=pypi.org']"
    return None
