"""One experiment: its curve, its studies, its trials, its live status, and the control of its run."""

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from batchscale.analysis.answer import make_answer
from batchscale.errors import BatchscaleError, RecordsError
from batchscale.figures.names import goal_label, workload_label
from batchscale.records.frames import Records
from batchscale.report.section import points_table
from batchscale.report.text import result_sentences
from batchscale.web.charts import chart_kinds, workload_at
from batchscale.web.comparison import analysis_of
from batchscale.web.experiment_check import check_text
from batchscale.web.experiment_form import with_trials
from batchscale.web.pages.params import KEY, find_records_folder, parse_trials, trial_query
from batchscale.web.records_folders import RecordsFolder, visible
from batchscale.web.refusals import RefusedError
from batchscale.web.security import session_cookie
from batchscale.web.server_parts import ServerParts
from batchscale.web.status import FolderStatus, disk_space
from batchscale.web.trials import TrialQuery, trial_page

NO_ANSWER: dict[str, Any] = {
    "problem": "", "waiting": False, "goal": "", "analysis": None, "answer": None, "points": None, "sentences": (),
    "has_points": False,
}  # fmt: skip


def make_routes(parts: ServerParts) -> APIRouter:
    """``/x/KEY``, its parts, its events, and ``/x/KEY/stop`` and ``/x/KEY/continue``."""
    routes = APIRouter()
    _add_pages(routes, parts)
    _add_control(routes, parts)
    return routes


def _add_pages(routes: APIRouter, parts: ServerParts) -> None:
    @routes.get("/x/{key}")
    def experiment(
        request: Request,
        key: KEY,
        query: Annotated[TrialQuery, Depends(trial_query)],
        kind: Annotated[str, Query(max_length=40)] = "curve",
        t: Annotated[list[str], Query(max_length=200)] = [],  # noqa: B006 - FastAPI copies it
    ) -> Response:
        folder, number = find_records_folder(parts, key)
        status = parts.statuses.read(folder.path)
        values: dict[str, Any] = {
            "key": key, "folder": folder, "status": status, "query": query,
            "control": _control_values(parts, folder, status), "kinds": chart_kinds(), "disk": disk_space(folder.path),
            "kind": kind if kind in chart_kinds() else "curve", "selected": parse_trials(t),
            "is_filtered": bool(request.query_params.keys() - {"kind"}),
        }  # fmt: skip
        return parts.pages.page(request, "experiment.html", **values, **_read_values(parts, folder, number, query))

    @routes.get("/x/{key}/answer")
    def answer(key: KEY) -> Response:
        folder, number = find_records_folder(parts, key)

        def work(_records: Records) -> str:
            values = _answer_values(parts, folder, number)
            return parts.pages.part("answer.html", key=key, workload="", **values)

        try:
            return HTMLResponse(parts.cache.result(folder.path, f"answer {number}", work))
        except RecordsError as error:
            values = _no_answer(parts, folder, error)
            return HTMLResponse(parts.pages.part("answer.html", key=key, workload="", **values))

    @routes.get("/x/{key}/control")
    def control(request: Request, key: KEY) -> Response:
        folder, _ = find_records_folder(parts, key)
        status = parts.statuses.read(folder.path)
        values = _control_values(parts, folder, status)
        return parts.pages.page(request, "control.html", key=key, status=status, control=values)

    @routes.get("/x/{key}/events")
    async def events(
        request: Request, key: KEY, last_event_id: Annotated[str | None, Header(max_length=100)] = None
    ) -> Response:
        folder, _ = find_records_folder(parts, key)
        if parts.live.is_full:
            raise RefusedError(503, "Too many live pages are open. The page loads without being live.")
        cookie = session_cookie(list(request.scope["headers"]), parts.settings.cookie)
        by_token = request.state.identity.name == "token"

        def is_allowed() -> bool:
            return by_token or parts.auth.find_session(cookie) is not None

        stream = parts.live.stream(folder, last_event_id, is_allowed)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def _add_control(routes: APIRouter, parts: ServerParts) -> None:
    """Stop as Ctrl-C does, continue, extend. Nothing is ever deleted."""

    @routes.post("/x/{key}/stop")
    def stop(request: Request, key: KEY) -> Response:
        folder, _ = find_records_folder(parts, key)
        parts.runs.stop(folder.path)
        parts.audit.add(request.state.identity.name, "stop", "done", folder.name)
        return RedirectResponse(f"/x/{key}", 303)

    @routes.post("/x/{key}/continue")
    def resume(request: Request, key: KEY) -> Response:
        folder, _ = find_records_folder(parts, key)
        started = parts.runs.find(folder.path)
        if started is None:
            raise RefusedError(409, "This run was not started here. Continue it with the command that started it.")
        form = request.state.form
        if started.details.get("is_own_file"):
            parts.runs.start_file(folder.path, Path(started.details["file"]))
        else:
            text = form.get("toml") or parts.runs.text(folder.path) or ""
            if form.get("trials"):
                text = with_trials(text, _parse_count(form["trials"]))
            check_text(text)
            parts.runs.start_text(folder.path, text)
        parts.audit.add(request.state.identity.name, "continue", "done", folder.name)
        return RedirectResponse(f"/x/{key}", 303)


def _read_values(parts: ServerParts, folder: RecordsFolder, number: int, query: TrialQuery) -> dict[str, Any]:
    """The answer and the trials, as far as there are any: a run that has just begun has none."""
    try:
        records = parts.cache.records(folder.path)
    except RecordsError as error:
        return _no_answer(parts, folder, error) | {"workload": "", "trials": None, "notices": []}
    name = workload_at(records, number)
    trials = parts.cache.result(
        folder.path, f"trials {number} {query}", lambda records: trial_page(records.workload(name), query)
    )
    answer = _answer_values(parts, folder, number)  # first: it reads the measurements, which may be damaged
    notices = [visible(text, 400) for text in parts.cache.notices(folder.path)[:20]]
    num_trials = records.workload(name).trials.height
    head = {"workload": visible(workload_label(name)), "num_trials": num_trials}
    return head | {"trials": trials, "notices": notices} | answer


def _no_answer(parts: ServerParts, folder: RecordsFolder, error: RecordsError) -> dict[str, Any]:
    """Values without an answer: a run that has just begun has recorded nothing yet, which is no problem."""
    if parts.runs.find(folder.path) is not None or parts.statuses.read(folder.path).snapshot is not None:
        return NO_ANSWER | {"waiting": True}
    return NO_ANSWER | {"problem": visible(error, 400)}


def _answer_values(parts: ServerParts, folder: RecordsFolder, number: int) -> dict[str, Any]:
    try:
        analysis = analysis_of(parts.cache, folder, number)
    except BatchscaleError as error:
        return NO_ANSWER | ({"waiting": True} if _is_early(parts, folder) else {"problem": visible(error, 400)})
    return NO_ANSWER | {
        "goal": visible(goal_label(analysis.goal)) if analysis.goal else "",
        "analysis": analysis,
        "answer": make_answer(analysis),
        "points": points_table(analysis),
        "sentences": result_sentences(analysis),
        "has_points": analysis.curve["steps"].drop_nulls().len() > 0,
    }


def _is_early(parts: ServerParts, folder: RecordsFolder) -> bool:
    """True if a run has begun here and none of its trials has ended."""
    if parts.statuses.read(folder.path).snapshot is None:
        return False
    try:
        return parts.cache.records(folder.path).trials.is_empty()
    except RecordsError:
        return False


def _control_values(parts: ServerParts, folder: RecordsFolder, status: FolderStatus) -> dict[str, Any]:
    """The actions on the run of a folder, and its last output."""
    runs = parts.runs
    started = runs.find(folder.path)
    written_at = status.snapshot.written_at if status.snapshot else 0.0
    return {
        "is_ours": runs.is_ours(folder.path), "is_ending": runs.is_ending(folder.path, written_at),
        "text": runs.text(folder.path),
        "is_own_file": started is not None and bool(started.details.get("is_own_file")),
        "last_output": "\n".join(visible(line, 300) for line in runs.last_output(folder.path).splitlines()[-30:]),
    }  # fmt: skip


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        raise RefusedError(422, "The number of trials must be a whole number.")
    return int(text)
