"""OpenEnv servers for tests, one per path: `python -m clawtest_openenv PORT`."""

import sys
import time
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
from pydantic import Field


class EchoAction(Action):
    message: str = Field(description="what to say")


class EchoObservation(Observation):
    echoed: str = ""


class Echo(Environment):
    """Says back what it heard, rewards length, and is over after `bye`."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(self, seed=None, episode_id=None, hello="ready", **rest: Any) -> EchoObservation:
        self._state = State(episode_id=episode_id, step_count=0)
        return EchoObservation(echoed=f"{hello} {seed}", reward=0.0)

    def step(self, action: EchoAction, timeout_s=None, **rest: Any) -> EchoObservation:
        self._state.step_count += 1
        said = action.message
        if said == "crash":
            raise RuntimeError("the echo broke")
        if said == "slow":
            time.sleep(3)
        echoed = "x" * 3_000_000 if said == "huge" else "y" * 50_000 if said == "long" else said
        return EchoObservation(echoed=echoed, reward=len(said) * 0.5, done=said == "bye",
                               metadata={"step": self._state.step_count})

    @property
    def state(self) -> State:
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name="echo", description="Say something.")


class MoveAction(Action):
    """Move on the line."""

    by: int = Field(ge=-1, le=1)
    why: str = ""


class MoveObservation(Observation):
    at: int = 0
    goal: int = 0


class Line(Echo):
    """Reach the goal; each move costs."""

    def reset(self, seed=None, episode_id=None, **rest: Any) -> MoveObservation:
        self._at = 0
        return MoveObservation(at=0, goal=2)

    def step(self, action: MoveAction, timeout_s=None, **rest: Any) -> MoveObservation:
        self._at += action.by
        done = self._at == 2
        return MoveObservation(at=self._at, goal=2, reward=1.0 if done else -0.25, done=done)


class Desk(MCPEnvironment):
    """Tools over MCP."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server = FastMCP("desk")

        @server.tool
        def double(number: int) -> int:
            """Double a number."""
            if number > 100:
                raise ValueError("too big")
            return 2 * number

        super().__init__(server)
        self._state = State()

    def reset(self, seed=None, episode_id=None, **rest: Any) -> Observation:
        self._state = State(episode_id=episode_id, step_count=0)
        return Observation(done=False, reward=0.0)

    def _step_impl(self, action: Action, timeout_s=None, **rest: Any) -> Observation:
        return Observation(done=False, reward=0.0)

    @property
    def state(self) -> State:
        return self._state


def over_http_only(app: Any) -> Any:
    app.router.routes = [r for r in app.router.routes if getattr(r, "path", "") != "/ws"]
    return app


def servers() -> Any:
    """All servers in one process: importing openenv is what takes long."""
    one = Echo()
    echo, line = (EchoAction, EchoObservation), (MoveAction, MoveObservation)
    make, app = create_fastapi_app, FastAPI()
    app.mount("/echo", make(Echo, *echo, max_concurrent_envs=8))
    app.mount("/one", make(Echo, *echo, max_concurrent_envs=1))
    app.mount("/line", make(Line, *line, max_concurrent_envs=8))
    app.mount("/desk", make(Desk, CallToolAction, Observation, max_concurrent_envs=8))
    app.mount("/kept", over_http_only(make(lambda: one, *echo)))
    app.mount("/forgets", over_http_only(make(Echo, *echo)))
    return app


if __name__ == "__main__":
    uvicorn.run(servers(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning",
                timeout_graceful_shutdown=1)
