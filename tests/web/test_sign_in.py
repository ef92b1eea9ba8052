"""Signing in: attempts are counted by address, the right secret always works, and a link may be opened twice."""

import pytest
from starlette.testclient import TestClient

from batchscale.errors import SpecError
from batchscale.web.auth import Auth

ORIGIN = "http://127.0.0.1:8765"


def sign_in(client, secret):
    return client.post("/sign-in", data={"secret": secret}, headers={"origin": ORIGIN})


def test_wrong_attempts_of_one_address_do_not_slow_down_another(make_site, few):
    site = make_site(limits=few)
    guesser = site.stranger()
    assert [sign_in(guesser, "x").status_code for _ in range(4)] == [403, 403, 403, 429]
    other = TestClient(site.app, base_url=ORIGIN, client=("192.0.2.7", 5000), follow_redirects=False)
    assert sign_in(other, "typing mistake").status_code == 403
    assert sign_in(guesser, site.auth.code).status_code == 303


def test_a_session_goes_on_while_somebody_guesses(make_site, few):
    site = make_site(limits=few)
    visitor, guesser = site.visitor(), site.stranger()
    for _ in range(10):
        sign_in(guesser, "x")
    assert visitor.get("/").status_code == 200
    assert site.post(visitor, "/sign-out").status_code == 303


def test_the_printed_link_once_more_in_the_same_browser_leads_to_the_overview(site):
    code = site.auth.code
    client = site.stranger()
    assert sign_in(client, code).status_code == 303
    again = sign_in(client, code)  # the form of a page that was open before has no token of the session
    assert again.status_code == 303 and again.headers["location"] == "/"
    assert client.get("/").status_code == 200


def test_a_form_of_another_site_signs_nobody_in(site):
    headers = {"origin": ORIGIN, "sec-fetch-site": "cross-site"}
    for client in (site.stranger(), site.visitor()):
        assert client.post("/sign-in", data={"secret": site.auth.code}, headers=headers).status_code == 403


@pytest.mark.parametrize(
    "content",
    ["root:x:0:0:root:/root:/bin/bash\nbin:x:1:1::/bin:/bin/sh\n", "short", "with spaces " * 4, "\x00" * 40, "x" * 999],
)
def test_a_file_that_is_no_token_is_named_and_nobody_is_told_to_change_it(tmp_path, content):
    file = tmp_path / "passwd"
    file.write_text(content)
    file.chmod(0o644)
    with pytest.raises(SpecError, match="one line of 24 to 300 characters") as refused:
        Auth(tmp_path / "state", file)
    assert "chmod" not in str(refused.value) and str(file) in str(refused.value)


def test_a_device_or_a_folder_is_no_token_file(tmp_path):
    for path in ("/dev/zero", tmp_path, tmp_path / "missing"):
        with pytest.raises(SpecError, match="A token file must be"):
            Auth(tmp_path / "state", tmp_path / path)


def test_a_folder_with_other_files_is_not_made_private(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    shared.chmod(0o755)
    (shared / "somebodys").write_text("")
    with pytest.raises(SpecError, match="Pass a folder that does not exist yet"):
        Auth(shared)
    assert shared.stat().st_mode & 0o777 == 0o755 and not (shared / "token").exists()


def test_an_empty_folder_becomes_private_and_is_used_again(tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o755)
    Auth(state)
    assert state.stat().st_mode & 0o777 == 0o700
    state.chmod(0o755)
    Auth(state)
    assert state.stat().st_mode & 0o777 == 0o700
