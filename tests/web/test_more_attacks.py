"""Attacks on every route there is, on what is embedded elsewhere, and by what stands in records."""

import io
import json
import zipfile
from dataclasses import replace

import pytest

from batchscale.web.app import PAGES
from batchscale.web.auth import AuditLog
from batchscale.web.server_parts import ServerParts
from batchscale.web.settings import Limits

ORIGIN = "http://127.0.0.1:8765"
OPEN_WHEN_READ_ONLY = {"/sign-in", "/sign-out"}


def actions(site) -> list[str]:
    """The path of every route that acts."""
    parts = ServerParts(site.settings, site.auth, AuditLog(site.settings.state))
    routes = [route for page in PAGES for route in page.make_routes(parts).routes]
    methods = {method for route in routes for method in route.methods}
    assert methods <= {"GET", "HEAD", "POST"}
    return [fill(route.path, site) for route in routes if "POST" in route.methods]


def fill(path: str, site) -> str:
    return path.replace("{key}", site.key()).replace("{id}", "0" * 16)


def audit_of(site) -> list[dict[str, str]]:
    return [json.loads(line) for line in (site.settings.state / "audit.jsonl").read_text().splitlines()]


def test_every_action_needs_session_origin_and_token(make_site):
    site = make_site(limits=replace(Limits(), sign_ins=1000))
    client, paths = site.visitor(), actions(site)
    assert len(paths) >= 8
    for path in paths:
        if path != "/sign-in":
            assert site.stranger().post(path, headers={"origin": ORIGIN}).status_code == 401, path
        form = {"csrf": site.csrf(client)}
        assert client.post(path, data=form).status_code == 403, path
        assert client.post(path, data=form, headers={"origin": "null"}).status_code == 403, path
        if path != "/sign-in":  # its form may be older than the session; origin and site are checked all the same
            assert client.post(path, data={"csrf": "0" * 64}, headers={"origin": ORIGIN}).status_code == 403, path
        embedded = {"origin": ORIGIN, "sec-fetch-site": "same-site"}
        assert client.post(path, data=form, headers=embedded).status_code == 403, path


def test_read_only_refuses_every_action(make_site):
    site = make_site(read_only=True)
    client = site.visitor()
    before = sorted(str(path) for path in site.folder.rglob("*"))
    for path in actions(site):
        if path not in OPEN_WHEN_READ_ONLY:
            answer = site.post(client, path, name="new", toml="x", trials="5")
            assert answer.status_code == 403 and "read-only" in answer.text, path
    assert sorted(str(path) for path in site.folder.rglob("*")) == before


def test_refusals_by_pages_are_in_the_audit_log(site):
    client = site.visitor()
    assert site.post(client, f"/x/{site.key()}/stop").status_code == 409
    assert site.post(client, "/new/start", name="../up", toml="x").status_code == 422
    told = [(line["action"], line["outcome"]) for line in audit_of(site)]
    assert (f"POST /x/{site.key()}/stop", "409") in told and ("POST /new/start", "422") in told


def test_the_audit_log_has_one_line_for_each_entry_whatever_is_asked(site):
    client = site.visitor()
    client.post('/x/a%0a{"who":"admin"}%0a/stop', headers={"origin": ORIGIN}, data={"csrf": site.csrf(client)})
    lines = audit_of(site)
    assert all(line["who"] != "admin" for line in lines) and len(lines) == 2


@pytest.mark.parametrize("where", ["same-site", "cross-site"])
@pytest.mark.parametrize("mode", ["no-cors", "cors", "same-origin", None])
def test_nothing_can_be_embedded_by_other_ports_and_sites(site, where, mode):
    client = site.visitor()
    headers = {"sec-fetch-site": where} | ({"sec-fetch-mode": mode} if mode else {})
    for path in ("/", f"/x/{site.key()}/events", f"/x/{site.key()}/small.svg", f"/x/{site.key()}/records.zip"):
        assert client.get(path, headers=headers).status_code == 403, path
    assert client.get("/", headers=headers | {"sec-fetch-mode": "navigate"}).status_code == 200  # a link is followed
    assert client.get("/", headers={"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}).status_code == 200


def test_after_signing_out_the_old_cookie_opens_nothing(site):
    client = site.visitor()
    session = client.cookies[site.settings.cookie]
    site.post(client, "/sign-out")
    for path in ("/", f"/x/{site.key()}", f"/x/{site.key()}/events"):
        old = {"cookie": f"{site.settings.cookie}={session}"}
        assert site.stranger().get(path, headers=old).status_code == 401


def test_links_inside_a_tree_show_nothing_from_outside(site, tmp_path):
    secret = tmp_path / "outside"
    secret.mkdir()
    (secret / "measurements.csv").write_text("step,val/loss\n0,0.5\nTOPSECRET,1\n")
    (secret / "study.json").write_text('{"batch_size": 7, "dataset": "TOPSECRET"}')
    tree = site.folder / "finished"
    trial = next(tree.rglob("measurements.csv"))
    trial.unlink()
    trial.symlink_to(secret / "measurements.csv")
    (trial.parents[2] / "7").symlink_to(secret)
    client, key = site.visitor(), site.key()
    for tail in ("", "/answer", "/trials.csv", "/measurements.csv", "/studies.csv", "/records.zip", "/report.html"):
        answer = client.get(f"/x/{key}{tail}")
        assert b"TOPSECRET" not in answer.content and answer.status_code in (200, 422), tail


def test_names_of_metaparameters_are_text_everywhere(site):
    hostile = "=cmd|'<img src=x onerror=alert(1)>\u202e.[a]\"\\"
    for file in (site.folder / "finished").rglob("metadata.json"):
        stored = json.loads(file.read_text())
        stored["parameters"] = {hostile: 0.5, "learning_rate": 0.1}
        file.write_text(json.dumps(stored))
    client, key = site.visitor(), site.key()
    page = client.get(f"/x/{key}")
    assert page.status_code == 200 and "<img src=x" not in page.text and "&lt;img src=x" in page.text
    for tail in ("linked.svg", "linked.json", "linked.csv", "trials.csv", "report.html"):
        answer = client.get(f"/x/{key}/{tail}")
        assert answer.status_code in (200, 422), (tail, answer.text)
        assert tail.endswith(("json", "csv")) or "<img src=x" not in answer.text, tail


def test_cells_that_spreadsheets_would_run_are_guarded(site):
    status = next((site.folder / "finished").rglob("metadata.json"))
    stored = json.loads(status.read_text())
    stored["batchscale"] = stored.get("batchscale", {}) | {"hardware": "=HYPERLINK(1)"}
    status.write_text(json.dumps(stored))
    client, key = site.visitor(), site.key()
    for path in (f"/x/{key}/trials.csv", f"/x/{key}/chart/curve.csv", f"/x/{key}/linked.csv"):
        lines = client.get(path).text.splitlines()
        assert not any(cell.lstrip('"').startswith("=") for line in lines for cell in line.split(",")), path


def test_a_zip_bomb_is_never_unpacked(site):
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("experiment.toml", b"0" * 5_000_000)
    client = site.visitor()
    headers = {"origin": ORIGIN, "x-csrf-token": site.csrf(client)}
    sent = client.post("/new/check", content=bomb.getvalue(), headers=headers | {"content-type": "application/zip"})
    assert sent.status_code == 415
    packed = {"content-encoding": "gzip", "content-type": "application/x-www-form-urlencoded"}
    assert client.post("/new/check", content=bomb.getvalue(), headers=headers | packed).status_code == 400
    (site.folder / "bomb.zip").write_bytes(bomb.getvalue())
    (site.folder / "finished" / "bomb.tar.gz").write_bytes(bomb.getvalue())
    assert "bomb" not in client.get("/").text


def test_the_state_folder_is_not_listed_even_through_a_link(site):
    (site.folder / "state").symlink_to(site.settings.state)
    client = site.visitor()
    token = (site.settings.state / "token").read_text()
    assert token not in client.get("/").text and "<bdi>state" not in client.get("/").text
