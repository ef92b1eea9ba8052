"""Visitors of the live page, cheap enough to be many: they ask for what the page's own script asks for, and time it.

Plain HTTP over asyncio's streams: a client library would take more of the machine than the server that is measured.
"""

import asyncio
import random
import re
import time
import urllib.parse
import urllib.request
from collections import defaultdict
from dataclasses import dataclass, field

STATIC = ("web.css", "colours.css", "web.js", "htmx.min.js", "charts.js")


@dataclass
class Seen:
    """What visitors met: seconds of each answer by kind, events, and everything that went wrong."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    events: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Site:
    """A server and a session on it."""

    host: str
    port: int
    cookie: str
    key: str

    def request(self, path: str, kind: str = "*/*") -> bytes:
        """A request that keeps its connection."""
        lines = [f"GET {path} HTTP/1.1", f"Host: {self.host}:{self.port}", f"Cookie: {self.cookie}", f"Accept: {kind}"]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def sign_in(address: str) -> tuple[str, int, str]:
    """Host, port and cookie of a session, for the address that a server printed."""
    parts = urllib.parse.urlsplit(address)
    home = f"{parts.scheme}://{parts.netloc}"

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    form = urllib.parse.urlencode({"secret": parts.fragment}).encode()
    asked = urllib.request.Request(f"{home}/sign-in", form, {"Origin": home})
    try:
        urllib.request.build_opener(Stay).open(asked, timeout=20)
    except urllib.error.HTTPError as answer:
        cookie = answer.headers["set-cookie"].partition(";")[0]
        return str(parts.hostname), int(parts.port or 80), cookie
    raise SystemExit("The server let nobody in.")


class Visitor:
    """One page in one browser."""

    def __init__(self, site: Site, seen: Seen, *, has_cache: bool, chance: random.Random) -> None:
        self.site, self.seen, self.has_cache, self.chance = site, seen, has_cache, chance

    async def stay(self, seconds: float) -> None:
        """Open the page, watch it, load it once again in between, and leave."""
        end = time.monotonic() + seconds
        await asyncio.sleep(self.chance.uniform(0, min(5.0, seconds / 4)))
        again = time.monotonic() + self.chance.uniform(0.3, 0.7) * (end - time.monotonic())
        try:
            await self._look(again)
            self.has_cache = True
            await self._look(end)
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            self.seen.wrong.append(repr(error))

    async def _look(self, end: float) -> None:
        self.connection = await asyncio.open_connection(self.site.host, self.site.port)
        try:
            page = f"/x/{self.site.key}"
            await self._get(page, "page", "text/html")
            for name in () if self.has_cache else STATIC:
                await self._get(f"/static/{name}", "static")
            await self._get(f"{page}/chart/curve.json?theme=light&width=1280", "chart")
            await self._watch(page, end)
        finally:
            self.connection[1].close()

    async def _watch(self, page: str, end: float) -> None:
        reader, writer = await asyncio.open_connection(self.site.host, self.site.port)
        curve = None
        try:
            writer.write(self.site.request(f"{page}/events", "text/event-stream"))
            while time.monotonic() < end:
                async with asyncio.timeout(max(0.01, end - time.monotonic())):
                    line = await reader.readuntil(b"\n")
                if not line.startswith(b"data:"):
                    continue
                self.seen.events += 1
                found = re.search(rb'"curve": "([^"]*)"', line)
                if found and curve is not None and found[1] != curve:
                    await asyncio.sleep(0.2 + 1.8 * self.chance.random())  # as the page's script does
                    await self._get(f"{page}/answer", "answer")
                    await self._get(f"{page}/chart/curve.json?theme=light&width=1280", "chart")
                curve = found[1] if found else curve
        except TimeoutError:
            return
        finally:
            writer.close()

    async def _get(self, path: str, kind: str, accept: str = "*/*") -> None:
        started = time.perf_counter()
        try:
            reader, head = await self._ask(path, accept)
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            if isinstance(error, asyncio.IncompleteReadError) and error.partial:
                raise
            # The server closed a connection on which nothing was said for a while: a browser opens another.
            self.connection[1].close()
            self.connection = await asyncio.open_connection(self.site.host, self.site.port)
            reader, head = await self._ask(path, accept)
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        if length is None:
            raise ValueError(f"{path}: no length in {head[:100]!r}")
        await reader.readexactly(int(length[1]))
        self.seen.seconds[kind].append(time.perf_counter() - started)
        if not head.startswith(b"HTTP/1.1 200"):
            self.seen.wrong.append(f"{path}: {head[:40]!r}")

    async def _ask(self, path: str, accept: str) -> tuple[asyncio.StreamReader, bytes]:
        reader, writer = self.connection
        writer.write(self.site.request(path, accept))
        return reader, await reader.readuntil(b"\r\n\r\n")


async def visit(site: Site, seen: Seen, clients: int, seconds: float, *, has_cache: bool, seed: int) -> None:
    """So many visitors for so long."""
    chances = [random.Random(seed * 1000 + number) for number in range(clients)]
    visitors = [Visitor(site, seen, has_cache=has_cache, chance=chance) for chance in chances]
    await asyncio.gather(*(visitor.stay(seconds) for visitor in visitors))
