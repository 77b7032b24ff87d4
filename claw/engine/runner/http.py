"""The HTTP server around a plugin's app: uvicorn, started and stopped by the host.

Owns: the listening socket, the address, a graceful end.
Does not own: signals (the host), the app (the plugin).
"""

import asyncio
import contextlib
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn

from claw.config import ServeConfig
from claw.errors import ClawError, UsageError

GRACE_S = 10
"""for answers that are being given when the run ends"""
KEEP_ALIVE_S = 65
"""longer than clients keep an idle connection, so that they close first"""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the host has the signals


class Http:
    """Binds at once, so that the address is known; serves until it is cancelled."""

    def __init__(self, app: Any, serve: ServeConfig, api_key: str) -> None:
        if not api_key and serve.is_public:
            raise UsageError(
                "a public address needs a key", found=f"serve.host = {serve.host}",
                allowed="127.0.0.1, or a key", do="set serve.api_key_env",
            )
        tls = _tls(serve)
        self._socket = _bound(serve.host, serve.port)
        shown = f"[{serve.host}]" if ":" in serve.host else serve.host
        scheme = "https" if tls else "http"
        self.address = f"{scheme}://{shown}:{self._socket.getsockname()[1]}"
        self._server = _Server(uvicorn.Config(
            app, **tls, log_config=None, access_log=False, server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=GRACE_S,
        ))

    async def serve(self, on_ready: Callable[[], None]) -> None:
        """Serve; when cancelled, finish what is being answered first."""
        serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        try:
            while not self._server.started and not serving.done():
                await asyncio.sleep(0.02)
            if not self._server.started:
                raise ClawError("the plugin's app did not start", do="see the lines above")
            on_ready()
            await asyncio.shield(serving)
        finally:
            self._server.should_exit = True
            await serving
            self._socket.close()


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UsageError(
            "the address cannot be used", found=f"{host}:{port}: {error.strerror}",
            allowed="a free port; 0 takes any", do="set serve.port, or stop what uses it",
        ) from error
    return listener


def _tls(serve: ServeConfig) -> dict[str, str]:
    """What uvicorn needs of a certificate that can be used; nothing where there is none."""
    if not serve.tls_cert:
        return {}
    cert, key = Path(serve.tls_cert).expanduser(), Path(serve.tls_key).expanduser()
    try:
        if key.stat().st_mode & stat.S_IROTH:
            raise UsageError("the private key of the certificate is readable by others",
                             found=str(key), do=f"chmod 600 {key}")
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    except OSError as error:  # of the files, and of what is in them
        raise UsageError(
            "the certificate cannot be used", found=f"{cert}, {key}: {error}",
            allowed="PEM files: serve.tls_cert with the chain, serve.tls_key with its key",
        ) from error
    return {"ssl_certfile": str(cert), "ssl_keyfile": str(key)}
