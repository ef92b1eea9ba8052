"""Downloads against a loopback server that cuts, corrupts, stalls, and does not know how to resume."""

import gzip
import hashlib
import io
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from batchscale.errors import DataError
from batchscale.workloads.datasets.files.download import Patience
from batchscale.workloads.datasets.files.fetch import FetchSettings, fetch_dataset, staging
from batchscale.workloads.datasets.files.official import Download, OfficialFile, Origin

CONTENT = hashlib.shake_128(b"content").digest(900_000)
QUICK = Patience(stall_s=0.5, attempts=2)


class Handler(BaseHTTPRequestHandler):
    """``/cut/``: every answer ends after a third. ``/once/``: the first one does. Others as their names say."""

    def do_GET(self):
        _, behaviour, name = self.path.split("/")
        self.server.requests.append((behaviour, name, self.headers.get("Range")))
        if behaviour == "absent":
            self.send_error(404)
            return
        content = self.server.files[name]
        if behaviour == "corrupt":
            content = content[:1000] + bytes([content[1000] ^ 1]) + content[1001:]
        if behaviour == "longer":
            content += b"x" * 3_000_000
        start = 0
        asked = self.headers.get("Range")
        if asked and behaviour != "no_resume":
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self._send(content[start:], behaviour, len(content))

    def _send(self, rest, behaviour, total):
        first = len([r for r in self.server.requests if r[0] == behaviour]) == 1
        if behaviour == "cut" or (behaviour in ("once", "no_resume") and first):
            self.wfile.write(rest[: total // 3])
        elif behaviour == "stall":
            self.wfile.write(rest[:1000])
            self.wfile.flush()
            self.server.released.wait(5)
        elif behaviour != "dead":
            self.wfile.write(rest)

    def log_message(self, *_):
        pass


class QuietServer(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """The client hangs up on answers that are too long: nothing to report."""


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = QuietServer(("127.0.0.1", 0), Handler)
    server.requests, server.released = [], threading.Event()
    server.files = {"a.gz": gzip.compress(CONTENT), "b.txt": CONTENT[::-1]}
    server.at = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


def official(name, content):
    return OfficialFile(name, len(content), hashlib.sha256(content).hexdigest())


def source(server, *behaviours):
    names = {"a.gz": official("a", CONTENT), "b.txt": official("b.txt", CONTENT[::-1])}
    downloads = (
        Download(name, tuple(f"{server.at}/{way}/{name}" for way in behaviours), (file,))
        for name, file in names.items()
    )
    return Origin("letters", tuple(downloads), "terms", "")


def get(server, tmp_path, *behaviours, **more):
    return fetch_dataset(FetchSettings(source(server, *behaviours), tmp_path, patience=QUICK, **more))


def assert_complete(server, folder):
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == server.files


def test_a_download_is_verified_and_nothing_else_is_left(server, tmp_path):
    folder = get(server, tmp_path, "good")
    assert folder == tmp_path / "letters"
    assert_complete(server, folder)
    assert not (tmp_path / ".partial" / "letters").exists()


def test_a_cut_download_continues_where_it_ended(server, tmp_path):
    assert_complete(server, get(server, tmp_path, "cut"))
    size = len(server.files["b.txt"])
    ranges = [asked for _, name, asked in server.requests if name == "b.txt"]
    assert ranges == [None, f"bytes={size // 3}-", f"bytes={2 * (size // 3)}-"]


def test_a_server_that_cannot_resume_is_asked_from_the_beginning(server, tmp_path):
    server.files = {"b.txt": CONTENT[::-1]}
    one = Origin("letters", source(server, "no_resume").downloads[1:], "", "")
    folder = fetch_dataset(FetchSettings(one, tmp_path, patience=QUICK))
    assert_complete(server, folder)
    assert len(server.requests) == 2


def test_progress_reaches_the_whole_size(server, tmp_path):
    seen = {}
    get(server, tmp_path, "cut", progress=lambda name: lambda done, total: seen.update({name: (done, total)}))
    assert seen == {name: (len(content), len(content)) for name, content in server.files.items()}


@pytest.mark.parametrize("bad", ["corrupt", "stall", "dead", "absent", "longer"])
def test_the_next_mirror_is_asked_when_one_fails(server, tmp_path, bad):
    assert_complete(server, get(server, tmp_path, bad, "good"))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("corrupt", "damaged|not the official a"),
        ("stall", "timed out"),
        ("dead", "2 attempts in a row received almost nothing"),
        ("absent", "404"),
        ("longer", "where at most"),
    ],
)
def test_without_a_good_mirror_the_reason_of_each_is_said_and_nothing_appears(server, tmp_path, bad, reason):
    with pytest.raises(DataError, match=f"(?s)No mirror has the file.*{bad}/a.gz: .*({reason})"):
        get(server, tmp_path, bad)
    assert not (tmp_path / "letters").exists()


def test_a_stall_is_given_up_in_time(server, tmp_path):
    start = time.monotonic()
    with pytest.raises(DataError):
        get(server, tmp_path, "stall")
    assert time.monotonic() - start < 6 * QUICK.stall_s  # two connections that bring a little, for each file


def test_an_interrupted_download_continues_in_the_next_call(server, tmp_path):
    class Interrupted(BaseException):
        pass

    def stop_in_second_file(name):
        def listen(done, total):
            if name == "b.txt" and done > total // 2:
                raise Interrupted

        return listen

    with pytest.raises(Interrupted):
        get(server, tmp_path, "good", progress=stop_in_second_file)
    assert not (tmp_path / "letters").exists()
    server.requests.clear()
    assert_complete(server, get(server, tmp_path, "good"))
    assert [name for _, name, _ in server.requests] == ["b.txt"]  # the first file was finished
    assert int(server.requests[0][2].removeprefix("bytes=").removesuffix("-")) > 0


def test_wrong_bytes_of_an_earlier_call_are_thrown_away(server, tmp_path):
    parts = tmp_path / ".partial" / "letters"
    parts.mkdir(parents=True)
    url = f"{server.at}/good/a.gz"
    (parts / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.part").write_bytes(b"rubbish")
    assert_complete(server, get(server, tmp_path, "good"))


def test_a_part_that_was_complete_is_not_fetched_again(server, tmp_path):
    parts = tmp_path / ".partial" / "letters"
    parts.mkdir(parents=True)
    url = f"{server.at}/good/a.gz"
    part = parts / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.part"
    part.write_bytes(server.files["a.gz"])
    assert_complete(server, get(server, tmp_path, "good"))


def test_another_address_replaces_the_mirrors(server, tmp_path):
    folder = fetch_dataset(FetchSettings(source(server, "absent"), tmp_path, (f"{server.at}/good/",), QUICK))
    assert_complete(server, folder)


def test_an_address_of_one_file_is_refused_for_several_files(server, tmp_path):
    with pytest.raises(DataError, match=r"--url must end in '/'"):
        fetch_dataset(FetchSettings(source(server), tmp_path, (f"{server.at}/good/a.gz",), QUICK))


def test_only_web_addresses_are_fetched(server, tmp_path):
    with pytest.raises(DataError, match="http:// or https://"):
        fetch_dataset(FetchSettings(source(server), tmp_path, ("file:///etc/",), QUICK))


def test_files_of_an_archive_are_verified_one_by_one(server, tmp_path):
    server.files["set.tar.gz"] = tar({"x/one.bin": b"1" * 5000, "x/two.bin": b"2" * 5000, "x/readme": b"no"})
    contents = (official("one.bin", b"1" * 5000), official("two.bin", b"2" * 5000))
    item = Download("set.tar.gz", (f"{server.at}/good/set.tar.gz",), contents)
    folder = fetch_dataset(FetchSettings(Origin("letters", (item,), "", ""), tmp_path, patience=QUICK))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "one.bin": b"1" * 5000,
        "two.bin": b"2" * 5000,
    }
    wrong = Download("set.tar.gz", item.mirrors, (contents[0], official("two.bin", b"3" * 5000)))
    with pytest.raises(DataError, match=r"two\.bin is not the official two\.bin"):
        fetch_dataset(FetchSettings(Origin("other", (wrong,), "", ""), tmp_path, patience=QUICK))
    assert not (tmp_path / "other").exists()


def test_an_archive_known_as_a_whole_is_unpacked(server, tmp_path):
    content = tar({"top/train/a.txt": b"a", "top/b.txt": b"b"})
    server.files["all.tar.gz"] = content
    item = Download(
        "all.tar.gz",
        (f"{server.at}/good/all.tar.gz",),
        num_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        unpack=True,
    )
    folder = fetch_dataset(FetchSettings(Origin("letters", (item,), "", ""), tmp_path, patience=QUICK))
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*.txt")) == ["top/b.txt", "top/train/a.txt"]


def test_two_processes_do_not_get_the_same_set(server, tmp_path):
    with staging(tmp_path, "letters"), pytest.raises(DataError, match="Another process"):
        get(server, tmp_path, "good")


def test_a_folder_that_is_there_but_incomplete_is_completed(server, tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.gz").write_bytes(b"old and wrong")
    assert_complete(server, get(server, tmp_path, "good"))


def test_a_full_disk_is_not_blamed_on_the_mirror(server, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(DataError, match=r"cannot be put into .*No space left"):
        get(
            server,
            tmp_path,
            "good",
        )
    assert not (tmp_path / "letters").exists()


def tar(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()
