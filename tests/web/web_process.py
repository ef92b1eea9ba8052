"""A real server in a process of its own, with a browser's cookie and nothing else of a browser."""

import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path


class WebProcess:
    """``batchscale web`` on one port, to be killed and started again. The session outlives it."""

    def __init__(self, folder: Path, state: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._command = [
            sys.executable, "-m", "batchscale", "web", str(folder), "--port", str(self.port), "--state", str(state),
            *options,
        ]  # fmt: skip
        self.state = state
        self.cookie = ""
        self.csrf = ""
        self.address = self.start()

    @property
    def home(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> str:
        """Start it; gives the address with the one-time code."""
        self.child = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL)
        assert self.child.stdout is not None
        found = re.search(r"Open (\S+)", self.child.stdout.readline())
        assert found is not None, "the server did not start"
        return found[1]

    def kill(self) -> None:
        """Kill it, at once."""
        self.child.kill()
        self.child.wait()
        self.child.stdout.close()

    def end(self) -> None:
        """Ask it to end."""
        self.child.terminate()
        self.child.wait(30)
        self.child.stdout.close()

    def sign_in(self) -> None:
        answer = self.ask("/sign-in", {"secret": self.address.partition("#")[2]})
        assert answer[0] == 303, answer
        self.cookie = answer[1]["set-cookie"].partition(";")[0]
        found = re.search(r'name="csrf" content="([0-9a-f]+)"', self.ask("/")[2])
        assert found is not None
        self.csrf = found[1]

    def ask(self, path: str, form: dict[str, str] | None = None, **headers: str) -> tuple[int, dict[str, str], str]:
        """Status, headers and text of an answer; redirections are not followed."""
        data = None if form is None else urllib.parse.urlencode({"csrf": self.csrf, **form}).encode()
        asked = urllib.request.Request(
            self.home + path, data, {"Cookie": self.cookie, "Origin": self.home, "Accept": "text/html", **headers}
        )
        try:
            with urllib.request.build_opener(_Stay).open(asked, timeout=30) as answer:
                return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read().decode()
        except urllib.error.HTTPError as answer:
            return answer.code, {k.lower(): v for k, v in answer.headers.items()}, answer.read().decode()

    def wait(self, seconds: float = 60) -> None:
        """Until it answers again."""
        end = time.monotonic() + seconds
        while True:
            try:
                self.ask("/sign-in")
            except OSError:
                assert time.monotonic() < end, "the server does not answer"
                time.sleep(0.05)
            else:
                return

    def first_event(self, path: str, last_id: str) -> str:
        """The id of the first event after ``last_id``."""
        asked = urllib.request.Request(self.home + path, None, {"Cookie": self.cookie, "Last-Event-ID": last_id})
        with urllib.request.urlopen(asked, timeout=30) as stream:
            for line in stream:
                if line.startswith(b"id: "):
                    return line[4:].strip().decode()
        raise AssertionError("the stream ended without an event")


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None
