"""A page on 127.0.0.1 that is made anew whenever what it shows has changed.

Read-only, for one person on this machine: the address holds a random token, and every other address
does not exist; nothing is served by the name of a file; a request has to name this server as its
host, so that a site in the same browser cannot reach it under a name of its own.
"""

import secrets
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fedprior.core import check
from fedprior.pages.page import Page
from fedprior.pages.render import render

HOST = "127.0.0.1"
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Served:
    """The page in its latest version: `make()` returns it, `version()` changes when it would."""

    def __init__(self, make: Callable[[], Page], version: Callable[[], str]) -> None:
        self.version = version
        self._make = make
        self._lock = threading.Lock()
        self._known, self._html = "", b""

    def html(self) -> bytes:
        """The page; made by one request at a time, and once for each version."""
        with self._lock:
            current = self.version()
            if current != self._known or not self._html:
                self._html = render(self._make(), version=current).encode()
                self._known = current
            return self._html

    def excuse(self, error: Exception) -> bytes:
        """A page that says why there is none, until something changes."""
        page = Page(title="The page cannot be made", lead=str(error) or type(error).__name__)
        return render(page, version=self.version()).encode()


class PageServer(ThreadingHTTPServer):
    """Serves one page; `address` is where. Port 0 takes one that is free."""

    daemon_threads = True
    allow_reuse_address = False

    def __init__(self, served: Served, *, port: int = 0) -> None:
        check.count("watch", least=0, port=port)
        check.require(port < 2**16, "watch", "port", "at most 65535", port)
        self.served, self.token = served, secrets.token_urlsafe(24)
        super().__init__((HOST, port), _Handler)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a reader that has gone."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    server_version, sys_version = "fedprior", ""
    timeout = 30  # seconds that a request may take to arrive

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # every other method
            return self._refuse
        raise AttributeError(name)

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _refuse(self) -> None:
        self.close_connection = True  # a body may follow, which nobody reads
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, b"", Allow="GET, HEAD")

    def _answer(self) -> None:
        port = self.server.server_port
        if self.headers.get_all("Host") not in ([f"{HOST}:{port}"], [f"localhost:{port}"]):
            return self._send(HTTPStatus.FORBIDDEN, b"")
        place, given = f"/{self.server.token}/", self.path.encode()
        if secrets.compare_digest(given, place.encode()):
            return self._page()
        if secrets.compare_digest(given, f"{place}version".encode()):
            return self._send(HTTPStatus.OK, self.server.served.version().encode())
        return self._send(HTTPStatus.NOT_FOUND, b"")

    def _page(self) -> None:
        try:
            html = self.server.served.html()
        except Exception as error:  # whatever it is, the reader should see it, not an empty answer
            html = self.server.served.excuse(error)  # which follows the run, too
            return self._send(HTTPStatus.INTERNAL_SERVER_ERROR, html, kind="text/html")
        return self._send(HTTPStatus.OK, html, kind="text/html")

    def _send(
        self, status: HTTPStatus, content: bytes, *, kind: str = "text/plain", **headers: str
    ) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log: it would hold the token."""
