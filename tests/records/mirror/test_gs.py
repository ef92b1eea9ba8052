"""Mirrors on an emulator of Google's storage over HTTP, through a proxy that fails as networks and servers do."""

import pytest
from failing_proxy import Proxy, contents, make_tree

from batchscale.errors import StorageError
from batchscale.records import remote_store as store_module
from batchscale.records.mirror import open_mirror

pytestmark = [pytest.mark.remote, pytest.mark.filterwarnings("default")]  # the libraries of the server warn much
BUCKET = "records"


@pytest.fixture(scope="module")
def server():
    from gcp_storage_emulator.server import create_server

    found = create_server("127.0.0.1", 0, in_memory=True, default_bucket=BUCKET)
    found.start()
    yield found._api._httpd.server_port
    found.stop()


@pytest.fixture
def proxy(server, monkeypatch):
    import gcsfs

    found = Proxy(server)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", found.url)
    monkeypatch.setattr(store_module, "_GCS_TIMES", {"sock_connect": 2, "sock_read": 3})
    # its own tries again take a minute; ours are what is tested
    monkeypatch.setattr("gcsfs.retry.is_retriable", lambda _error: False)
    assert gcsfs
    yield found
    found.close()


@pytest.fixture
def url(request):
    return f"gs://{BUCKET}/{request.node.name}"


@pytest.fixture
def tree(tmp_path):
    return make_tree(tmp_path / "records")


def mirror_of(root, url):
    return open_mirror(root, url, pause=lambda _seconds: None)


def test_a_tree_goes_to_google_and_comes_back(proxy, tree, url, tmp_path):
    (tree / "state.npz").write_bytes(bytes(range(256)) * 3_000)
    assert mirror_of(tree, url).sync()
    mirror_of(tmp_path / "new", url).restore()
    assert contents(tmp_path / "new") == contents(tree)


@pytest.mark.parametrize("trouble", ["500", "hang", "drop", "cut"])
def test_single_failures_at_any_request_are_passed(proxy, tree, url, tmp_path, trouble):
    for number in range(1, 8, 3):
        proxy.trouble = {proxy.requests + number: trouble}
        mirror = mirror_of(tree, f"{url}-{number}")
        assert mirror.sync(), mirror.problem
        proxy.trouble = {proxy.requests + 2: trouble}
        mirror_of(tmp_path / f"new-{number}", f"{url}-{number}").restore()
        assert contents(tmp_path / f"new-{number}") == contents(tree)


@pytest.mark.parametrize("trouble", ["500", "drop"])
def test_a_server_that_fails_for_good_leaves_the_last_whole_state(proxy, tree, url, tmp_path, trouble):
    mirror = mirror_of(tree, url)
    assert mirror.sync()
    before = contents(tree)
    (tree / "digits/fc/sgd/8/0/measurements.csv").write_text("new")
    proxy.trouble = dict.fromkeys(range(proxy.requests + 2, proxy.requests + 1000), trouble)
    assert not mirror.sync()
    assert "cannot write" in mirror.problem
    proxy.trouble = {}
    mirror_of(tmp_path / "new", url).restore()
    assert contents(tmp_path / "new") == before
    assert mirror.sync()


def test_credentials_that_are_not_taken_are_said_at_once_before_anything_starts(proxy, tree, url):
    proxy.trouble = dict.fromkeys(range(proxy.requests + 1, proxy.requests + 1000), "401")
    before = proxy.requests
    with pytest.raises(StorageError, match=r"401.* Check the address, the network and the credentials"):
        mirror_of(tree, url)
    assert proxy.requests == before + 1


def test_a_bucket_that_is_not_there_is_said(proxy, tree):
    mirror = mirror_of(tree, "gs://no-such-bucket/x")
    assert not mirror.sync()
    assert "no-such-bucket" in mirror.problem
