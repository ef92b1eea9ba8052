"""The attack list of docs/web.md, each attack tried."""

import json
import os
import stat

import pytest

from batchscale.errors import SpecError
from batchscale.web.auth import Auth
from batchscale.web.security import Rate
from batchscale.web.settings import WebSettings, check_settings

ORIGIN = "http://127.0.0.1:8765"


@pytest.mark.parametrize(
    "host", ["evil.example:8765", "evil.example", "127.0.0.1", "127.0.0.1:8766", "localhost:8765.evil.example", ""]
)
def test_dns_rebinding_is_refused_by_the_host(site, host):
    for path in ("/", f"/x/{site.key()}/events", "/sign-in", "/static/web.js"):
        assert site.visitor().get(path, headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    "origin",
    ["http://127.0.0.1:9999", "null", "https://127.0.0.1:8765", "http://evil.example", "http://localhost:8765"],
)
def test_other_origins_are_refused_for_reading_streams_and_acting(site, origin):
    client = site.visitor()
    assert client.get("/", headers={"origin": origin}).status_code == 403
    assert client.get(f"/x/{site.key()}/events", headers={"origin": origin}).status_code == 403
    form = {"csrf": site.csrf(client)}
    assert client.post("/sign-out", data=form, headers={"origin": origin}).status_code == 403


def test_an_action_without_an_origin_is_refused(site):
    client = site.visitor()
    assert client.post("/sign-out", data={"csrf": site.csrf(client)}).status_code == 403


@pytest.mark.parametrize("csrf", ["", "0" * 64])
def test_an_action_without_the_forms_token_is_refused(site, csrf):
    client = site.visitor()
    assert client.post("/sign-out", data={"csrf": csrf}, headers={"origin": ORIGIN}).status_code == 403
    assert client.get("/").status_code == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
def test_other_methods_are_refused(site, method):
    assert site.visitor().request(method, "/", headers={"origin": ORIGIN}).status_code == 405


def test_strangers_see_nothing(site):
    client = site.stranger()
    for path in ("/", f"/x/{site.key()}", f"/x/{site.key()}/events", f"/x/{site.key()}/records.zip", "/nothing"):
        assert client.get(path).status_code == 401
        assert client.get(path, headers={"accept": "text/html"}).headers["location"] == "/sign-in"


def test_a_code_works_once_and_the_cookie_is_hidden_from_scripts(site):
    code = site.auth.code
    first = site.stranger().post("/sign-in", data={"secret": code}, headers={"origin": ORIGIN})
    cookie = first.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    second = site.stranger().post("/sign-in", data={"secret": code}, headers={"origin": ORIGIN})
    assert second.status_code == 403 and "set-cookie" not in second.headers


def test_the_code_is_not_taken_from_the_address(site):
    assert site.stranger().get(f"/?secret={site.auth.code}&token={site.auth.code}").status_code == 401


def test_guessing_is_slowed_down(make_site, few):
    site = make_site(limits=few)
    client = site.stranger()
    codes = [client.post("/sign-in", data={"secret": "x"}, headers={"origin": ORIGIN}).status_code for _ in range(5)]
    assert codes == [403, 403, 403, 429, 429]
    token = (site.settings.state / "token").read_text()  # nobody can lock the owner out
    right = client.post("/sign-in", data={"secret": token}, headers={"origin": ORIGIN})
    assert right.status_code == 303 and client.get("/").status_code == 200


def test_the_bearer_token_acts_and_a_wrong_one_does_not(site):
    token = (site.settings.state / "token").read_text()
    client = site.stranger()
    assert client.get("/", headers={"authorization": f"Bearer {token}"}).status_code == 200
    assert client.get("/", headers={"authorization": "Bearer " + "x" * 43}).status_code == 401


def test_token_sessions_and_audit_log_are_for_their_owner_only(site):
    site.visitor()
    for name in ("token", "sessions.json", "audit.jsonl"):
        assert stat.S_IMODE((site.settings.state / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(site.settings.state.stat().st_mode) == 0o700


def test_a_token_that_others_could_read_is_replaced_or_refused(tmp_path):
    first = Auth(tmp_path / "state")
    file = tmp_path / "state" / "token"
    before = file.read_text()
    file.chmod(0o644)
    Auth(tmp_path / "state")
    assert file.read_text() != before and first.find_bearer(f"Bearer {before}") is not None
    given = tmp_path / "given"
    given.write_text("x" * 40)
    given.chmod(0o640)
    with pytest.raises(SpecError, match="Others can read"):
        Auth(tmp_path / "state", given)


def test_sessions_survive_a_restart_and_end_with_logout(make_site):
    site = make_site()
    client = site.visitor()
    again = make_site()
    assert again.auth.find_session(client.cookies[site.settings.cookie]) is not None
    session = client.cookies[site.settings.cookie]
    assert site.post(client, "/sign-out").status_code == 303
    assert site.auth.find_session(session) is None
    assert make_site().auth.find_session(session) is None


def test_a_stream_ends_when_its_session_does(site):
    import asyncio

    folder = next(p for p in site.app_folders() if p.name == "finished")
    from batchscale.web.live import LivePages
    from batchscale.web.status import StatusReader

    live = LivePages(StatusReader(), lambda _place, standing: standing.state, 2)
    answers = iter([True, False])

    async def all_events() -> list[bytes]:
        return [event async for event in live.stream(folder, None, lambda: next(answers))]

    events = asyncio.run(all_events())
    assert len(events) == 2 and b"event: standing" in events[1] and not live.is_full


@pytest.mark.parametrize(
    "key",
    ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "0000000000000000-0", "%00", "A" * 16 + "-0", "0" * 16 + "-99999"],
)
def test_paths_do_not_leave_the_folder(site, key):
    for tail in ("", "/records.zip", "/chart/curve.svg", "/events"):
        assert site.visitor().get(f"/x/{key}{tail}").status_code in (404, 422)


@pytest.mark.parametrize("name", ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "token", "web.js%00.css"])
def test_static_files_are_a_list(site, name):
    assert site.visitor().get(f"/static/{name}").status_code == 404


def test_links_are_neither_followed_nor_packed(site, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret")
    tree = site.folder / "finished"
    (tree / "link.txt").symlink_to(secret)
    (site.folder / "elsewhere").symlink_to(tmp_path / "state")
    os.mkfifo(tree / "pipe")
    client = site.visitor()
    assert b"a secret" not in client.get(f"/x/{site.key()}/records.zip").content
    assert "elsewhere" not in client.get("/").text


def test_names_from_records_are_text(site):
    folder = site.folder / '"><img src=x onerror=alert(1)>\u202eexe'
    (site.folder / "interrupted").rename(folder)
    status = folder / ".batchscale" / "status.json"
    stored = json.loads(status.read_text())
    stored |= {"workload": "<script>alert(1)</script>", "goal": "'\"><b>", "notice": "<i>\u202e"}
    status.write_text(json.dumps(stored))
    client = site.visitor()
    row = next(folder for folder in site.app_folders() if folder.name != "finished")
    for path in ("/", f"/x/{row.id}-0"):
        page = client.get(path).text
        assert "<script>alert" not in page and "<img src=x" not in page and "\u202e" not in page and "<b>" not in page
        assert "&lt;script&gt;" in page or path != "/"


def test_headers_cannot_be_injected(site):
    client = site.visitor()
    answer = client.get(f"/x/{site.key()}/chart/curve.svg?save=true&theme=light%0d%0aset-cookie:a=b")
    assert answer.status_code == 422 and "set-cookie" not in answer.headers
    assert client.get("/static/web.js%0d%0ax: y").status_code == 404


@pytest.mark.parametrize("path", ["/", "/sign-in", "/static/web.js", "/nothing", "/x/0000000000000000-0"])
def test_every_answer_has_the_security_headers(site, path):
    headers = site.visitor().get(path).headers
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in headers


def test_oversized_and_strange_bodies_are_refused(make_site, few):
    site = make_site(limits=few)
    client, headers = site.stranger(), {"origin": ORIGIN}
    assert client.post("/sign-in", data={"secret": "x" * 2000}, headers=headers).status_code == 413
    assert client.post("/sign-in", content=iter([b"x" * 600] * 3), headers=headers).status_code == 413
    assert client.post("/sign-in", json={"secret": "x"}, headers=headers).status_code == 415
    form = {**headers, "content-type": "application/x-www-form-urlencoded"}
    assert (
        client.post("/sign-in", content=b"&".join([b"a=1"] * 200)[:900] + b"&%ff=%fe", headers=form).status_code == 400
    )


def test_oversized_headers_are_refused(site):
    assert site.stranger().get("/", headers={"x": "a" * 20_000}).status_code == 431


def test_a_body_that_never_comes_is_refused(make_site, few):
    import asyncio

    site = make_site(limits=few)
    told: list[int] = []

    async def never() -> dict[str, object]:
        await asyncio.sleep(60)
        return {}

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            told.append(message["status"])  # type: ignore[arg-type]

    scope = {
        "type": "http", "method": "POST", "path": "/sign-in",
        "headers": [(b"host", b"127.0.0.1:8765"), (b"origin", ORIGIN.encode())],
    }  # fmt: skip
    asyncio.run(site.app(scope, never, send))
    assert told == [408]


def test_two_hosts_or_two_cookies_are_refused(site):
    client = site.visitor()
    session = client.cookies[site.settings.cookie]
    two = [("host", "127.0.0.1:8765"), ("host", "evil.example")]
    assert site.stranger().get("/", headers=two).status_code in (400, 421)
    cookies = f"{site.settings.cookie}={session}; {site.settings.cookie}=other"
    assert site.stranger().get("/", headers={"cookie": cookies}).status_code == 401


def test_our_own_mistakes_show_no_traceback(site, monkeypatch, caplog):
    monkeypatch.setattr("batchscale.web.overview.Overview.page", lambda *_: 1 / 0)
    answer = site.visitor().get("/", headers={"accept": "text/html"})
    assert answer.status_code == 500
    assert "Traceback" not in answer.text and "ZeroDivision" not in answer.text and ".py" not in answer.text
    assert "ZeroDivisionError" in caplog.text


def test_web_sockets_are_closed(site):
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), site.visitor().websocket_connect("/"):
        pass


def test_read_only_changes_nothing_but_lets_people_out(make_site):
    site = make_site(read_only=True)
    client = site.visitor()
    assert site.post(client, f"/x/{site.key()}/stop").status_code == 403
    assert site.post(client, "/sign-out").status_code == 303


def test_every_action_is_in_the_audit_log(site):
    client = site.visitor()
    client.post("/sign-out", data={"csrf": "wrong"}, headers={"origin": ORIGIN})
    site.post(client, "/sign-out")
    lines = [json.loads(line) for line in (site.settings.state / "audit.jsonl").read_text().splitlines()]
    assert [(line["action"], line["outcome"]) for line in lines] == [
        ("sign in", "done"), ("POST /sign-out", "403"), ("sign out", "done"),
    ]  # fmt: skip


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_machines_need_tls_and_a_token(tmp_path, host):
    settings = WebSettings((tmp_path,), tmp_path.parent / "state", host)
    with pytest.raises(SpecError, match="TLS and a token"):
        check_settings(settings, token_given=True)


def test_the_token_is_never_inside_what_is_served(tmp_path):
    with pytest.raises(SpecError, match="outside"):
        check_settings(WebSettings((tmp_path,), tmp_path / "state"), token_given=False)
    check_settings(WebSettings((tmp_path,), tmp_path / ".local" / "state"), token_given=False)  # as in a home folder
    (tmp_path / ".batchscale").mkdir()  # then the whole folder is one run's, and its zip would hold the token
    with pytest.raises(SpecError, match="outside"):
        check_settings(WebSettings((tmp_path,), tmp_path / ".local" / "state"), token_given=False)


def test_a_rate_fills_with_time():
    now = [0.0]
    rate = Rate(2, lambda: now[0])
    assert [rate.take("a") for _ in range(3)] == [True, True, False]
    now[0] = 30.0
    assert [rate.take("a"), rate.take("a"), rate.take("b")] == [True, False, True]


def test_scripts_of_others_are_the_ones_we_looked_at():
    import hashlib

    from batchscale.web.pages.assets import HTMX_SHA256, HTMX_VERSION, packaged_file

    script = packaged_file("htmx.min.js")
    assert hashlib.sha256(script).hexdigest() == HTMX_SHA256
    assert f'version:"{HTMX_VERSION}"'.encode() in script
