"""A server on records that an older version wrote, and clients that are signed in or not."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from batchscale.cli.plan_job import train_options
from batchscale.web.app import create_app
from batchscale.web.auth import Auth
from batchscale.web.security import SecurityMiddleware
from batchscale.web.settings import Limits, WebSettings

sys.path[:0] = [str(Path(__file__).parent), *(str(Path(__file__).parents[1] / name) for name in ("analysis", "fakes"))]

ORIGIN = "http://127.0.0.1:8765"
STORED = Path(__file__).parents[1] / "formats" / "format_1"


class Site:
    """One server under test."""

    def __init__(self, tmp: Path, **changes: object) -> None:
        self.folder = tmp / "records"
        self.folder.mkdir(exist_ok=True)
        state = tmp / "state"
        self.auth = Auth(state)
        options = frozenset(train_options())
        self.settings = WebSettings((self.folder,), state, train_options=options, **changes)  # type: ignore[arg-type]
        self.app: SecurityMiddleware = create_app(self.settings, self.auth)

    def stranger(self) -> TestClient:
        return TestClient(self.app, base_url=ORIGIN, follow_redirects=False)

    def visitor(self) -> TestClient:
        client = self.stranger()
        answer = client.post("/sign-in", data={"secret": self.auth.code}, headers={"origin": ORIGIN})
        assert answer.status_code == 303, answer.text
        return client

    def csrf(self, client: TestClient) -> str:
        identity = self.auth.find_session(client.cookies[self.settings.cookie])
        assert identity is not None
        return identity.csrf

    def post(self, client: TestClient, path: str, **form: str):
        token = self.csrf(client)  # in the form, and in the header, where uploads have it
        headers = {"origin": ORIGIN, "x-csrf-token": token}
        return client.post(path, data={"csrf": token, **form}, headers=headers)

    def key(self, name: str = "finished") -> str:
        return next(folder.id for folder in self.app_folders() if folder.name == name) + "-0"

    def app_folders(self):
        from batchscale.web.records_folders import RecordsFolders

        return RecordsFolders(self.settings.folders).all()


@pytest.fixture(autouse=True)
def _children_are_collected(monkeypatch):
    """What a test starts has ended with it; else Python complains, in whichever test comes next."""
    children = []

    class Noted(subprocess.Popen):
        def __init__(self, *words, **options):
            super().__init__(*words, **options)
            children.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    yield
    for child in children:
        child.wait(60)


@pytest.fixture
def make_site(tmp_path: Path) -> Callable[..., Site]:
    def make(**changes: object) -> Site:
        site = Site(tmp_path, **changes)
        for name in ("finished", "interrupted"):
            if not (site.folder / name).exists():
                shutil.copytree(STORED / name, site.folder / name)
        return site

    return make


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


@pytest.fixture
def few() -> Limits:
    return Limits(sign_ins=3, actions=3, body_bytes=1000, body_s=0.2)
