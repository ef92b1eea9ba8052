"""In a real browser: a server that is killed under a live page, linked charts, keyboard, no scripts, instruments."""

import json
import shutil
import sys
import time
from pathlib import Path

import pytest
from browsing import browse, fits, until
from web_process import WebProcess

from batchscale.run.status import is_running

sys.path.insert(0, str(Path(__file__).parents[1] / "instruments"))
from sounds import make_wav

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

STORED = Path(__file__).parents[1] / "formats" / "format_1"
EXPERIMENT = """goal = "val/classification_error < 0.06"
batch_sizes = [16, 64]
trials = 40
stop = "budget"
workload = "digits/fc_64/nesterov_momentum"
[budget]
steps = 3000
[evaluation]
count = 10
[search]
repeats = 0
"""


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "records"
    folder.mkdir()
    shutil.copytree(STORED / "finished", folder / "finished")
    process = WebProcess(folder, tmp_path / "state", "--workers", "1")
    process.folder = folder
    yield process
    process.end()


def test_the_printed_link_works_in_a_tab_that_is_already_open(server):
    code = server.address.partition("#")[2]
    assert code
    with browse(server.home) as page:
        page.goto(server.home)  # leads to the page for signing in, which stays open
        page.wait_for_selector("#sign-in")
        page.goto(server.address)  # another fragment alone: the browser loads nothing
        page.wait_for_selector("text=Experiments")
        assert "#" not in page.url and code not in page.url
        page.go_back()
        assert code not in page.url


def test_a_live_page_comes_back_after_the_server_was_killed(server):
    with browse(server.home) as page:
        page.goto(server.address)
        page.wait_for_selector("text=Experiments")
        page.goto(f"{server.home}/new")
        page.fill("#toml", EXPERIMENT)
        page.fill("#name", "mine")
        page.click("text=Start >> nth=-1")
        page.wait_for_selector("#run-status .state.running")
        until(page, "document.querySelectorAll('#run-status tbody tr').length === 2")
        until(page, "document.querySelector('#chart .explored canvas') !== null")  # not loaded again from now on
        page.evaluate("window.here = true")
        server.kill()
        page.wait_for_selector("#lost", state="visible")
        assert is_running(server.folder / "mine")
        server.start()
        page.wait_for_selector("#lost", state="hidden")
        before = page.inner_text("#run-status")
        until(page, f"document.getElementById('run-status').innerText !== {before!r}")
        assert page.evaluate("window.here")  # the same page, never loaded again
        page.click("#stop")
        end = time.monotonic() + 120
        while is_running(server.folder / "mine"):
            assert time.monotonic() < end
            time.sleep(0.1)
        assert page.foreign == []


def test_a_frame_around_trials_leaves_their_curves(server):
    with browse(server.home) as page:
        page.goto(server.address)
        page.click("td.name a:has-text('finished')")
        page.click("#h-trials")
        page.click("summary:has-text('linked')")
        page.wait_for_selector("#linked .explored canvas")
        canvas = page.query_selector("#linked .explored canvas")
        before = canvas.screenshot()
        box = canvas.bounding_box()
        page.mouse.move(box["x"] + 90, box["y"] + 70)
        page.mouse.down()
        page.mouse.move(box["x"] + 200, box["y"] + 320, steps=5)
        page.mouse.up()
        page.wait_for_timeout(500)
        assert page.query_selector("#linked .explored canvas").screenshot() != before
        assert page.said == [] and page.foreign == []


def test_the_keyboard_reaches_everything_and_shows_where_it_is(server):
    with browse(server.home) as page:
        page.goto(server.address)
        page.wait_for_selector("text=Experiments")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        seen = set()
        for _ in range(30):
            page.keyboard.press("Tab")
            seen.add(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none" or page.evaluate("document.activeElement === document.body")
        assert {"q", "state", "finished", "Compare the selected"} <= seen


def test_everything_can_be_read_without_scripts(server):
    with browse(server.home, java_script_enabled=False) as page:
        page.goto(server.address)
        page.fill("#secret", server.address.partition("#")[2])
        page.click("text=Sign in >> nth=-1")
        page.click("td.name a:has-text('finished')")
        page.wait_for_selector("#chart img")
        assert page.query_selector("#chart img").bounding_box()["height"] > 100
        page.click("#h-trials")
        page.click("summary:has-text('linked')")
        page.click("text=Report and data")
        page.goto(f"{server.home}/instruments")
        page.fill("#name", "silent")
        page.click("text=Make it")
        assert "instruments/silent/recordings" in page.inner_text("noscript")
        page.goto(f"{server.home}/new")
        page.fill("#f-workload", "mnist/fc_1024/sgd")
        page.click("text=Fill in this workload")
        assert page.input_value("#f-goal") == "val/classification_error < 0.03"
        assert "need JavaScript" in page.inner_text("noscript >> nth=0")


def test_from_recordings_to_a_transfer(server, tmp_path):
    line, voice = tmp_path / "line.wav", tmp_path / "voice.wav"
    line.write_bytes(make_wav(8.0, notes=(220.0, 262.0, 330.0, 392.0) * 4))
    voice.write_bytes(make_wav(3.0, notes=(330.0, 262.0)))
    with browse(server.home) as page:
        page.goto(server.address)
        page.click("nav >> text=Instruments")
        page.fill("#name", "synthetic")
        page.click("text=Make it")
        page.set_input_files("#up-recordings", str(line))
        page.wait_for_selector("text=001-line.wav")
        page.click("#prepare")
        page.wait_for_selector("text=Prepared:", timeout=300_000)
        page.select_option("#model", "ddsp_tiny")
        for field, value in (("steps", "6"), ("batch_size", "4"), ("loss", "0.001")):
            page.fill(f"#{field}", value)
        page.click("#train")
        page.wait_for_selector("#loss-curve", timeout=400_000)
        page.wait_for_selector("#h-play", timeout=400_000)
        page.wait_for_selector(".state.finished", timeout=400_000)
        page.wait_for_selector("audio")
        page.set_input_files("#up-voices", str(voice))
        page.wait_for_selector("option:has-text('001-voice.wav')", state="attached")
        page.click("#transfer")
        page.wait_for_selector("audio[src$='transfer-1.wav']", timeout=300_000)
        until(page, "!document.querySelector('.state.running')")
        fits(page)
        with page.expect_download() as model:
            page.click("text=Download the model")
        model.value.save_as(tmp_path / "model.zip")
        assert (tmp_path / "model.zip").stat().st_size > 1000
        source = page.get_attribute("audio[src$='transfer-1.wav']", "src")
        played = page.evaluate(f"fetch({source!r}).then(a => a.arrayBuffer()).then(b => b.byteLength)")
        assert played > 2.5 * 16_000 * 2
        assert page.said == [] and page.foreign == []


def test_a_recording_selected_before_the_script_is_loaded_is_uploaded_once(server, tmp_path):
    line = tmp_path / "line.wav"
    line.write_bytes(make_wav(1.0, notes=(220.0,)))
    delayed = []
    with browse(server.home) as page:
        page.goto(server.address)
        page.click("nav >> text=Instruments")
        page.route("**/instruments.js", lambda request: delayed.append(request))
        page.fill("#name", "synthetic")
        page.evaluate("document.getElementById('name').form.requestSubmit()")
        page.set_input_files("#up-recordings", str(line))
        until(page, "document.getElementById('up-recordings').files.length === 1")
        assert len(delayed) == 1
        delayed[0].continue_()
        page.unroute("**/instruments.js")
        page.wait_for_selector("text=001-line.wav")
        page.reload()
        page.wait_for_timeout(2000)
        recordings = server.folder / "instruments" / "synthetic" / "recordings"
        assert [file.name for file in recordings.iterdir()] == ["001-line.wav"]
        assert page.said == [] and page.foreign == []


def test_a_reader_who_comes_back_sees_what_changed(server):
    """The browser stored what it showed an hour ago: fewer trials, fewer sizes, more steps."""
    with browse(server.home) as page:
        page.goto(server.address)
        page.click("td.name a:has-text('finished')")
        page.wait_for_selector("#known", state="attached")
        known = json.loads(page.get_attribute("#known", "data-known"))
        assert page.query_selector("#since").is_hidden()  # never looked before: nothing to compare
        sizes = list(known["best"])
        steps = known["best"][sizes[0]]
        old = known | {
            "state": "running", "progress": 0.25, "trials": known["trials"] - 3, "critical": "",
            "best": {sizes[0]: steps + 7},
        }  # fmt: skip
        page.add_init_script(
            f"""if (!sessionStorage.getItem('told')) {{
              sessionStorage.setItem('told', 'yes');
              const old = Object.assign({json.dumps(old)}, {{ at: Date.now() - 3700000 }});
              localStorage.setItem('seen ' + location.pathname, JSON.stringify(old));
            }}"""
        )  # what the browser would have stored then, there before the page's own script runs
        page.reload()
        page.wait_for_selector("#since", state="visible")
        text = page.inner_text("#since")
        assert "Since you last looked, 1 hour ago" in text
        assert f"3 more trials ended, {known['trials']} in all." in text
        assert f"Batch size {int(sizes[0]):,} needs {steps:,} steps, before {steps + 7:,}." in text
        for size in sizes[1:]:
            assert f"Batch size {int(size):,} reached the goal, after {known['best'][size]:,} steps." in text
        assert "100 % done, before 25 %." in text and "The run is finished, before running." in text
        page.click("#since button")
        assert page.query_selector("#since").is_hidden()
        page.reload()
        page.wait_for_selector("#known", state="attached")
        assert page.query_selector("#since").is_hidden()  # read
        assert page.said == [] and page.foreign == []
