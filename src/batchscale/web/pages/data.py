"""Downloads of the report and of the data."""

from typing import Literal

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from batchscale.figures.selection import select_records
from batchscale.report.page import make_report
from batchscale.web.charts import workload_at
from batchscale.web.downloads import table_bytes, zip_files
from batchscale.web.pages.params import KEY, find_records_folder
from batchscale.web.server_parts import ServerParts


def make_routes(parts: ServerParts) -> APIRouter:
    """``/x/KEY/report.html``, ``/x/KEY/records.zip`` and the tables."""
    routes = APIRouter()

    @routes.get("/x/{key}/report.html")
    def report(key: KEY) -> Response:
        folder, number = find_records_folder(parts, key)

        def work(records):  # type: ignore[no-untyped-def]
            return make_report(select_records(records, [str(workload_at(records, number))]), name=folder.name)

        page = parts.cache.result(folder.path, f"report {number}", work)
        return Response(page, media_type="text/html; charset=utf-8", headers=_attachment(f"report-{key}.html"))

    @routes.get("/x/{key}/records.zip")
    def records_zip(key: KEY) -> Response:
        folder, _ = find_records_folder(parts, key)
        pieces = zip_files(folder.path, parts.settings.limits.zip_bytes)
        return StreamingResponse(pieces, media_type="application/zip", headers=_attachment(f"records-{key}.zip"))

    @routes.get("/x/{key}/{table}.{suffix}")
    def table(
        key: KEY, table: Literal["studies", "trials", "measurements"], suffix: Literal["csv", "parquet"]
    ) -> Response:
        folder, number = find_records_folder(parts, key)
        records = parts.cache.records(folder.path)
        data = table_bytes(records.workload(workload_at(records, number)), table, suffix)
        kind = "text/csv; charset=utf-8" if suffix == "csv" else "application/vnd.apache.parquet"
        return Response(data, media_type=kind, headers=_attachment(f"{table}-{key}.{suffix}"))

    return routes


def _attachment(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"'}
