"""`/healthz`, `/livez` and `/readyz`: whether the server is well, and each of its checks by name.

The pages look as those of kube-apiserver do; the checks are the server's own.
"""

from collections.abc import Callable, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from kthena.local.apiserver.replies import not_found_page
from kthena.machinery.gotext import quote

Check = Callable[[], bool]
"""Whether something works."""

PAGES = ("healthz", "livez", "readyz")


class HealthPages:
    """The pages of a server with some checks; the first one is that it answers at all."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks: dict[str, Check] = {"ping": lambda: True, **checks}

    async def page(self, request: Request) -> Response:
        """All checks: `ok`, or one line for each where it is asked for or where one fails."""
        name = request.url.path.strip("/")
        query = request.query_params
        lines, failed = self._run(query.getlist("exclude"))
        if failed:
            return _text(f"{lines}{name} check failed\n", 500)
        return _text(f"{lines}{name} check passed\n" if "verbose" in query else "ok")

    async def check(self, request: Request) -> Response:
        """One check."""
        check = self._checks.get(request.path_params["check"])
        if check is None:
            return not_found_page()
        return _text("ok") if check() else _text("internal server error: the check failed\n", 500)

    def _run(self, excluded: Sequence[str]) -> tuple[str, bool]:
        """One line for each check, and whether one has failed."""
        lines, failed = [], False
        for name, check in self._checks.items():
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok\n")
            elif check():
                lines.append(f"[+]{name} ok\n")
            else:
                failed = True
                lines.append(f"[-]{name} failed: reason withheld\n")
        unknown = sorted({name for name in excluded if name and name not in self._checks})
        if unknown:
            names = ",".join(map(quote, unknown))
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
        return "".join(lines), failed


def _text(text: str, status: int = 200) -> Response:
    headers = {"Cache-Control": "no-cache, private", "X-Content-Type-Options": "nosniff"}
    return PlainTextResponse(text, status, headers)
