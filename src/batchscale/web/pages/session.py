"""Signing in and out."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from batchscale.web.auth import SESSION_S
from batchscale.web.refusals import RefusedError
from batchscale.web.security import Rate, session_cookie
from batchscale.web.server_parts import ServerParts


def make_routes(parts: ServerParts) -> APIRouter:
    """``/sign-in`` and ``/sign-out``."""
    routes = APIRouter()
    settings, auth = parts.settings, parts.auth
    wrong_attempts = Rate(settings.limits.sign_ins)

    @routes.get("/sign-in")
    def show(request: Request) -> Response:
        return parts.pages.page(request, "sign_in.html", problem="")

    @routes.post("/sign-in")
    def sign_in(request: Request) -> Response:
        session = auth.sign_in(request.state.form.get("secret", "").strip()[:300])
        if session is None and request.state.identity is not None:  # the printed link once more, in the same browser
            return RedirectResponse("/", 303)
        if session is None:
            if not wrong_attempts.take(request.client.host if request.client else ""):
                raise RefusedError(429, "Too many wrong attempts to sign in. Wait a minute, or use the token.")
            parts.audit.add("stranger", "sign in", "refused")
            problem = "This is neither the one-time code, which works once, nor the token."
            return parts.pages.page(request, "sign_in.html", 403, problem=problem)
        parts.audit.add("session", "sign in", "done")
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            settings.cookie, session, max_age=SESSION_S, path="/", httponly=True, samesite="strict",
            secure=settings.certificate is not None,
        )  # fmt: skip
        return answer

    @routes.post("/sign-out")
    def sign_out(request: Request) -> Response:
        session = session_cookie(list(request.scope["headers"]), settings.cookie)
        if session:
            auth.sign_out(session)
        parts.audit.add(request.state.identity.name, "sign out", "done")
        answer = RedirectResponse("/sign-in", 303)
        answer.delete_cookie(settings.cookie, path="/", httponly=True, samesite="strict")
        return answer

    return routes
