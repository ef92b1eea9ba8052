"""One experiment: its curve, its studies, its trials, and how it stands, live."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from batchscale.analysis.sentences import answer_sentences
from batchscale.errors import BatchscaleError, RecordsError
from batchscale.records.frames import Records
from batchscale.web.charts import chart_kinds, workload_at
from batchscale.web.comparison import analysis_of
from batchscale.web.gate import session_cookie
from batchscale.web.pages.asked import KEY, asked_trials, find_records_folder, parse_trials
from batchscale.web.records_folders import RecordsFolder, visible
from batchscale.web.refusals import RefusedError
from batchscale.web.room import find_room
from batchscale.web.server_parts import ServerParts
from batchscale.web.trials import TrialWish, trial_page

NO_ANSWER: dict[str, Any] = {"problem": "", "waiting": False, "goal": "", "analysis": None, "sentences": ()}


def make_routes(parts: ServerParts) -> APIRouter:
    """``/x/KEY`` and what it is made of."""
    routes = APIRouter()

    @routes.get("/x/{key}")
    def experiment(
        request: Request,
        key: KEY,
        wish: Annotated[TrialWish, Depends(asked_trials)],
        kind: Annotated[str, Query(max_length=40)] = "curve",
        t: Annotated[list[str], Query(max_length=200)] = [],  # noqa: B006 - FastAPI copies it
    ) -> Response:
        folder, number = find_records_folder(parts, key)
        values: dict[str, Any] = {
            "key": key, "folder": folder, "standing": parts.standings.look(folder.path), "wish": wish,
            "control": _control(parts, folder), "kinds": chart_kinds(), "disk": find_room(folder.path),
            "kind": kind if kind in chart_kinds() else "curve", "chosen": parse_trials(t),
        }  # fmt: skip
        return parts.pages.page(request, "experiment.html", **values, **_read(parts, folder, number, wish))

    @routes.get("/x/{key}/answer")
    def answer(key: KEY) -> Response:
        folder, number = find_records_folder(parts, key)

        def work(_records: Records) -> str:
            return parts.pages.part("answer.html", **_answer(parts, folder, number))

        try:
            return HTMLResponse(parts.shelf.answer(folder.path, f"answer {number}", work))
        except RecordsError as error:
            return HTMLResponse(parts.pages.part("answer.html", **_nothing(parts, folder, error)))

    @routes.get("/x/{key}/control")
    def control(request: Request, key: KEY) -> Response:
        folder, _ = find_records_folder(parts, key)
        standing = parts.standings.look(folder.path)
        return parts.pages.page(request, "control.html", key=key, standing=standing, control=_control(parts, folder))

    @routes.get("/x/{key}/events")
    async def events(
        request: Request, key: KEY, last_event_id: Annotated[str | None, Header(max_length=100)] = None
    ) -> Response:
        folder, _ = find_records_folder(parts, key)
        if parts.live.is_full:
            raise RefusedError(503, "Too many pages are watching. The page loads without being live.")
        cookie = session_cookie(list(request.scope["headers"]), parts.settings.cookie)
        by_token = request.state.identity.name == "token"

        def is_welcome() -> bool:
            return by_token or parts.access.find_session(cookie) is not None

        stream = parts.live.stream(folder, last_event_id, is_welcome)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    return routes


def _read(parts: ServerParts, folder: RecordsFolder, number: int, wish: TrialWish) -> dict[str, Any]:
    """The answer and the trials, as far as there are any: a run that has only just begun has none."""
    try:
        records = parts.shelf.records(folder.path)
    except RecordsError as error:
        return _nothing(parts, folder, error) | {"workload": "", "trials": None, "notices": []}
    name = workload_at(records, number)
    trials = parts.shelf.answer(
        folder.path, f"trials {number} {wish}", lambda records: trial_page(records.workload(name), wish)
    )
    found = {
        "workload": visible(name), "trials": trials,
        "notices": [visible(text, 400) for text in parts.shelf.notices(folder.path)[:20]],
    }  # fmt: skip
    return found | _answer(parts, folder, number)


def _nothing(parts: ServerParts, folder: RecordsFolder, error: RecordsError) -> dict[str, Any]:
    """Why there is no answer: a run that has only just begun has recorded nothing yet, which is no problem."""
    if parts.runs.find(folder.path) is not None or parts.standings.look(folder.path).snapshot is not None:
        return NO_ANSWER | {"waiting": True}
    return NO_ANSWER | {"problem": visible(error, 400)}


def _answer(parts: ServerParts, folder: RecordsFolder, number: int) -> dict[str, Any]:
    try:
        analysis = analysis_of(parts.shelf, folder, number)
    except BatchscaleError as error:
        return NO_ANSWER | {"problem": visible(error, 400)}
    sentences = answer_sentences(analysis)
    return NO_ANSWER | {"goal": visible(analysis.goal), "analysis": analysis, "sentences": sentences}


def _control(parts: ServerParts, folder: RecordsFolder) -> dict[str, Any]:
    """What can be done with the run of a folder, and what it printed last."""
    runs = parts.runs
    started = runs.find(folder.path)
    return {
        "is_ours": runs.is_ours(folder.path), "is_starting": runs.is_starting(folder.path),
        "text": runs.text(folder.path), "is_own_file": started is not None and bool(started.details.get("is_own_file")),
        "last_words": "\n".join(visible(line, 300) for line in runs.last_output(folder.path).splitlines()[-30:]),
    }  # fmt: skip
