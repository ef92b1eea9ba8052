"""Mirrors and states of trials on an S3 server over HTTP, through a proxy that fails as networks and servers do."""

import pytest
from failing_proxy import Proxy, contents, make_tree
from made_states import state_at

from batchscale.errors import StorageError
from batchscale.records import remote_store as store_module
from batchscale.records.mirror import open_mirror
from batchscale.records.remote_store import RemoteStore
from batchscale.training.state_archive import SavedTrial
from batchscale.training.state_store import RemoteStateStore
from batchscale.workers.remote_setup import find_states_problem, remove_marker, write_marker

pytestmark = [pytest.mark.remote, pytest.mark.filterwarnings("default")]  # the libraries of the server warn much
BUCKET = "records"


@pytest.fixture(scope="module")
def server():
    from moto.server import ThreadedMotoServer

    found = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    found.start()
    yield found.get_host_and_port()[1]
    found.stop()


@pytest.fixture
def proxy(server, monkeypatch, request):
    found = Proxy(server)
    for name, value in {
        "AWS_ENDPOINT_URL": found.url,
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(
        store_module, "_TIMES", {"connect_timeout": 2, "read_timeout": 1, "retries": {"max_attempts": 0}}
    )
    import boto3

    boto3.client("s3").create_bucket(Bucket=BUCKET)
    found.requests = 0
    yield found
    found.close()


@pytest.fixture
def url(request):
    return f"s3://{BUCKET}/{request.node.name}"


@pytest.fixture
def tree(tmp_path):
    return make_tree(tmp_path / "records")


def mirror_of(root, url):
    return open_mirror(root, url, pause=lambda _seconds: None)


def test_a_tree_goes_to_s3_and_comes_back(proxy, tree, url, tmp_path):
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


def test_a_server_that_fails_for_good_leaves_the_last_whole_state(proxy, tree, url, tmp_path):
    mirror = mirror_of(tree, url)
    assert mirror.sync()
    before = contents(tree)
    (tree / "digits/fc/sgd/8/0/measurements.csv").write_text("new")
    proxy.trouble = dict.fromkeys(range(proxy.requests + 2, proxy.requests + 1000), "500")
    assert not mirror.sync()
    assert "cannot write" in mirror.problem
    proxy.trouble = {}
    mirror_of(tmp_path / "new", url).restore()
    assert contents(tmp_path / "new") == before
    assert mirror.sync()


def test_missing_credentials_are_said_before_anything_starts(proxy, tree, url, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    with pytest.raises(StorageError, match="credentials"):
        mirror_of(tree, url)


def test_a_bucket_that_is_not_there_is_said(proxy, tree):
    mirror = mirror_of(tree, "s3://no-such-bucket/x")
    assert not mirror.sync()
    assert "no-such-bucket" in mirror.problem


def states_at(url):
    return RemoteStateStore(RemoteStore(f"{url}/8", pause=lambda _seconds: None))


def step_at(url):
    saved = states_at(url).restore(1, state_at(0), "me")
    return None if saved is None else int(saved.state.step)


@pytest.mark.parametrize("trouble", ["500", "hang", "drop", "cut"])
def test_a_state_of_a_trial_is_stored_replaced_read_and_removed_past_failures(proxy, url, trouble):
    for step in (1, 2):
        proxy.trouble = {proxy.requests + step: trouble}
        states_at(url).save(1, SavedTrial(state_at(step), {}, "me"))
        assert step_at(url) == step
    proxy.trouble = {proxy.requests + 1: trouble}
    assert step_at(url) == 2, "another worker reads it"
    proxy.trouble = {}
    states_at(url).finish(1, SavedTrial(state_at(3), {}, "me"))
    assert step_at(url) is None


def test_a_server_that_fails_for_good_costs_the_state_and_not_the_trial(proxy, url, capsys):
    proxy.trouble = dict.fromkeys(range(proxy.requests + 1, proxy.requests + 1000), "500")
    states_at(url).save(1, SavedTrial(state_at(1), {}, "me"))
    assert step_at(url) is None
    assert "The state 1.npz is not stored." in capsys.readouterr().err


def test_the_mark_of_a_run_is_seen_by_whoever_reaches_the_path(proxy, url):
    write_marker(url, "secret")
    assert find_states_problem(url, "secret") == ""
    assert "the marker of this run is not there" in find_states_problem(url, "another")
    remove_marker(url)
    assert find_states_problem(url, "secret")


def test_a_bucket_that_does_not_exist_is_refused_at_once(proxy, tmp_path):
    mirror = open_mirror(tmp_path / "tree", "s3://nosuch/run-1")
    with pytest.raises(StorageError, match=r"s3://nosuch/run-1: cannot write write-check"):
        mirror.require_writable()


def test_the_check_of_a_mirror_leaves_nothing_there(proxy, tmp_path):
    mirror = open_mirror(tmp_path / "tree", f"s3://{BUCKET}/checked")
    mirror.require_writable()
    assert mirror.is_empty
    assert RemoteStore(f"s3://{BUCKET}/checked").get("write-check") is None
