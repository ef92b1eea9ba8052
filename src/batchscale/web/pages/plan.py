"""The plan of an experiment: machines, deadline and budget beside the chart and the sentences."""

from dataclasses import replace
from typing import Any, Literal

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from batchscale.analysis.curve_analysis import Analysis
from batchscale.figures.theme import find_theme
from batchscale.planning.assemble import have_own_script
from batchscale.planning.jobs.formats import FORMATS, check_format
from batchscale.planning.recommend import PICKS
from batchscale.planning.step_times import StepTime, records_step_times
from batchscale.web.charts import nearest_width, workload_at
from batchscale.web.comparison import analysis_of
from batchscale.web.pages.charts import WIDTH, chart_response
from batchscale.web.pages.params import KEY, find_records_folder
from batchscale.web.plans import (
    MAX_MACHINES,
    job_zip,
    plan_chart,
    plan_of,
    plan_values,
    read_query,
)
from batchscale.web.records_folders import RecordsFolder
from batchscale.web.server_parts import ServerParts


def make_routes(parts: ServerParts) -> APIRouter:
    """``/x/KEY/plan``, its chart and its job files. Planning changes nothing, so all requests are GET."""
    routes = APIRouter()

    @routes.get("/x/{key}/plan")
    def page(request: Request, key: KEY) -> Response:
        folder, number = find_records_folder(parts, key)
        times, workload = _times(parts, folder, number)
        query = read_query(request.query_params, times, workload)
        values = plan_values(lambda: plan_of(analysis_of(parts.cache, folder, number), times, query), query)
        return parts.pages.page(
            request, "plan.html", title=folder.name, back=f"/x/{key}", subtitle="", source=f"/x/{key}/plan",
            job=f"/x/{key}/job.zip", fixed=(), has_machines=True, url_query=str(request.url.query),
            formats=list(FORMATS), picks=PICKS, empty_rows=max(0, min(2, MAX_MACHINES - len(query.rows))), **values,
        )  # fmt: skip

    @routes.get("/x/{key}/plan.{suffix}")
    def chart(
        request: Request,
        key: KEY,
        suffix: Literal["svg", "png", "csv", "json"],
        theme: Literal["light", "dark"] = "light",
        width: WIDTH = None,
        save: bool = False,
    ) -> Response:
        content = plan_chart(_plan(parts, key, request), suffix, find_theme(theme), nearest_width(width))
        return chart_response(content, f"plan.{suffix}", save=save)

    @routes.get("/x/{key}/job.zip")
    def job(
        request: Request, key: KEY, job: str, pick: Literal["fastest", "cheapest", "budget", "deadline"] = "fastest"
    ) -> Response:
        check_format(job)
        data = job_zip(_plan(parts, key, request), pick, job, parts.settings.train_options)
        headers = {"content-disposition": f'attachment; filename="job-{pick}.zip"'}
        return Response(data, media_type="application/zip", headers=headers)

    return routes


def _times(parts: ServerParts, folder: RecordsFolder, number: int) -> tuple[tuple[StepTime, ...], str]:
    """Return the step times of the trials, and the name of their workload."""

    def work(records: Any) -> tuple[tuple[StepTime, ...], str]:
        workload = workload_at(records, number)
        return tuple(records_step_times(records, workload)), str(workload)

    return parts.cache.result(folder.path, f"step times {number}", work)


def _plan(parts: ServerParts, key: str, request: Request) -> Any:
    folder, number = find_records_folder(parts, key)
    analysis: Analysis = analysis_of(parts.cache, folder, number)
    times, workload = _times(parts, folder, number)
    plan = plan_of(analysis, times, read_query(request.query_params, times, workload))
    own_script = parts.cache.result(
        folder.path, f"own script {number}", lambda records: have_own_script(records, workload_at(records, number))
    )
    return replace(plan, has_own_script=own_script)
