"""One experiment: its curve, its studies, its trials, and how it stands, live."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from batchscale.analysis import answer_sentences
from batchscale.errors import BatchscaleError, RecordsError
from batchscale.records import Records
from batchscale.web.charts import chart_kinds, workload_at
from batchscale.web.comparison import analysis_of
from batchscale.web.gate import session_cookie
from batchscale.web.pages.asked import KEY, asked_trials, find_place, parse_trials
from batchscale.web.places import Place, visible
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
        place, number = find_place(parts, key)
        values: dict[str, Any] = {
            "key": key, "place": place, "standing": parts.standings.look(place.path), "wish": wish,
            "control": _control(parts, place), "kinds": chart_kinds(), "disk": find_room(place.path),
            "kind": kind if kind in chart_kinds() else "curve", "chosen": parse_trials(t),
        }  # fmt: skip
        return parts.pages.page(request, "experiment.html", **values, **_read(parts, place, number, wish))

    @routes.get("/x/{key}/answer")
    def answer(key: KEY) -> Response:
        place, number = find_place(parts, key)

        def work(_records: Records) -> str:
            return parts.pages.part("answer.html", **_answer(parts, place, number))

        try:
            return HTMLResponse(parts.shelf.answer(place.path, f"answer {number}", work))
        except RecordsError as error:
            return HTMLResponse(parts.pages.part("answer.html", **_nothing(parts, place, error)))

    @routes.get("/x/{key}/control")
    def control(request: Request, key: KEY) -> Response:
        place, _ = find_place(parts, key)
        standing = parts.standings.look(place.path)
        return parts.pages.page(request, "control.html", key=key, standing=standing, control=_control(parts, place))

    @routes.get("/x/{key}/events")
    async def events(
        request: Request, key: KEY, last_event_id: Annotated[str | None, Header(max_length=100)] = None
    ) -> Response:
        place, _ = find_place(parts, key)
        if parts.live.is_full:
            raise RefusedError(503, "Too many pages are watching. The page loads without being live.")
        cookie = session_cookie(list(request.scope["headers"]), parts.settings.cookie)
        by_token = request.state.identity.name == "token"

        def is_welcome() -> bool:
            return by_token or parts.access.find_session(cookie) is not None

        stream = parts.live.stream(place, last_event_id, is_welcome)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    return routes


def _read(parts: ServerParts, place: Place, number: int, wish: TrialWish) -> dict[str, Any]:
    """The answer and the trials, as far as there are any: a run that has only just begun has none."""
    try:
        records = parts.shelf.records(place.path)
    except RecordsError as error:
        return _nothing(parts, place, error) | {"workload": "", "trials": None, "notices": []}
    name = workload_at(records, number)
    trials = parts.shelf.answer(
        place.path, f"trials {number} {wish}", lambda records: trial_page(records.workload(name), wish)
    )
    found = {
        "workload": visible(name), "trials": trials,
        "notices": [visible(text, 400) for text in parts.shelf.notices(place.path)[:20]],
    }  # fmt: skip
    return found | _answer(parts, place, number)


def _nothing(parts: ServerParts, place: Place, error: RecordsError) -> dict[str, Any]:
    """Why there is no answer: a run that has only just begun has recorded nothing yet, which is no problem."""
    if parts.runs.find(place.path) is not None or parts.standings.look(place.path).snapshot is not None:
        return NO_ANSWER | {"waiting": True}
    return NO_ANSWER | {"problem": visible(error, 400)}


def _answer(parts: ServerParts, place: Place, number: int) -> dict[str, Any]:
    try:
        analysis = analysis_of(parts.shelf, place, number)
    except BatchscaleError as error:
        return NO_ANSWER | {"problem": visible(error, 400)}
    sentences = answer_sentences(analysis)
    return NO_ANSWER | {"goal": visible(analysis.goal), "analysis": analysis, "sentences": sentences}


def _control(parts: ServerParts, place: Place) -> dict[str, Any]:
    """What can be done with the run of a place, and what it printed last."""
    runs = parts.runs
    started = runs.find(place.path)
    return {
        "is_ours": runs.is_ours(place.path), "is_starting": runs.is_starting(place.path),
        "text": runs.text(place.path), "is_own_file": started is not None and started.is_own_file,
        "last_words": "\n".join(visible(line, 300) for line in runs.last_words(place.path).splitlines()[-30:]),
    }  # fmt: skip
