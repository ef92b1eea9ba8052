"""Plans of tables of runs: CSV files with a row per finished run, in the served folders or one level below."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from batchscale.figures.theme import find_theme
from batchscale.planning.assemble import assemble_plan, read_inputs
from batchscale.planning.plan import MachinePlan, PlanRequest
from batchscale.web.charts import nearest_width
from batchscale.web.pages.charts import WIDTH, chart_response
from batchscale.web.pages.params import ID
from batchscale.web.plans import PlanQuery, plan_chart, plan_values, read_query
from batchscale.web.records_folders import folder_id, visible
from batchscale.web.refusals import RefusedError
from batchscale.web.server_parts import ServerParts

MAX_BYTES = 2_000_000
MAX_TABLES = 50
MAX_ENTRIES = 2_000  # of one folder that are looked at
COLUMNS = (b"batch_size", b"steps")


@dataclass(frozen=True)
class RunsView:
    """A CSV file of runs; ``id`` is made from its path."""

    id: str
    name: str
    path: Path


def find_run_tables(served: tuple[Path, ...]) -> list[RunsView]:
    """Return the CSV files whose first line names the columns of runs, in order of names; links are not followed."""
    tables: list[RunsView] = []
    for top in served:
        for path in (*_files(top), *(file for folder in _folders(top) for file in _files(folder))):
            if len(tables) < MAX_TABLES and _has_runs(path):
                tables.append(RunsView(folder_id(path), visible(path.relative_to(top), 160), path))
    return sorted(tables, key=lambda table: table.name)


def make_routes(parts: ServerParts) -> APIRouter:
    """``/runs``, and ``/runs/ID`` with its chart. Planning changes nothing, so all requests are GET."""
    routes = APIRouter()

    def find(id_: str) -> RunsView:
        for table in find_run_tables(parts.folders.served):
            if table.id == id_:
                return table
        raise RefusedError(404, "There is no table of runs of this id, or not any more.")

    def plan_of(table: RunsView, query: PlanQuery) -> MachinePlan:
        deadline_s = None if query.deadline_h is None else 3600 * query.deadline_h
        return assemble_plan(read_inputs(table.path), PlanRequest(query.budget, deadline_s))

    @routes.get("/runs")
    def tables(request: Request) -> Response:
        return parts.pages.page(request, "runs.html", tables=find_run_tables(parts.folders.served))

    @routes.get("/runs/{id_}.{suffix}")
    def chart(
        request: Request,
        id_: ID,
        suffix: Literal["svg", "png", "csv", "json"],
        theme: Literal["light", "dark"] = "light",
        width: WIDTH = None,
        save: bool = False,
    ) -> Response:
        plan = plan_of(find(id_), read_query(request.query_params, ()))
        content = plan_chart(plan, suffix, find_theme(theme), nearest_width(width))
        return chart_response(content, f"plan.{suffix}", save=save)

    @routes.get("/runs/{id_}")
    def page(request: Request, id_: ID) -> Response:
        table, query = find(id_), read_query(request.query_params, ())
        return parts.pages.page(
            request, "plan.html", title=table.name, back="", subtitle="A plan of finished runs", source=f"/runs/{id_}",
            job="", fixed=(), has_machines=False, url_query=str(request.url.query), formats=(), picks=(), empty_rows=0,
            **plan_values(lambda: plan_of(table, query), query),
        )  # fmt: skip

    return routes


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry, _ in zip(entries, range(MAX_ENTRIES), strict=False)]
        return sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except OSError:
        return []


def _files(folder: Path) -> Iterator[Path]:
    for entry in _entries(folder):
        if entry.name.lower().endswith(".csv") and entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def _folders(folder: Path) -> Iterator[Path]:
    return (Path(entry.path) for entry in _entries(folder) if entry.is_dir(follow_symlinks=False))


def _has_runs(path: Path) -> bool:
    try:
        if path.stat().st_size > MAX_BYTES:
            return False
        with path.open("rb") as file:
            names = file.readline(4096).lower().replace(b'"', b"").strip().split(b",")
    except OSError:
        return False
    return set(COLUMNS) <= {name.strip() for name in names}
