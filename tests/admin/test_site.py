import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from aiohttp import ClientResponse, ClientSession, web

from proxy.admin.process import Reloaded
from proxy.admin.site import AdminSite
from proxy.http.fields import RawHeaders
from proxy.policy.dead_letter import DeadLetter, DeadLetterSummary, Obstacle, Replayed
from proxy.policy.delivery.state import Delivery, DeliveryRun, TransitionRefusal
from proxy.policy.delivery.words import DeliveryState
from proxy.policy.explain_command import ExplainContext
from proxy.policy.idempotency.record import KeyFilter, KeyPage, RecordState, Released, Shown
from proxy.policy.settings import Listen, Settings
from tests.support.waiting import PATIENCE


class Application:
    """An application whose answers a test can set."""

    def __init__(self) -> None:
        self.asked_token: str | None = None
        self.reason: str | None = None
        self.reloads = 0
        self.releases = 0
        self.faults: list[str] = []
        self.warnings: list[str] = []

    def token(self) -> str | None:
        return self.asked_token

    def not_ready(self) -> str | None:
        return self.reason

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        if "openmetrics" in accept:
            return b"# EOF\n", "application/openmetrics-text; version=1.0.0"
        return b"holdfast_build_info 1\n", "text/plain; version=0.0.4; charset=utf-8"

    async def status(self) -> dict[str, object]:
        return {"routes": {"charges": {"in_flight": 3}}}

    async def find_attempts(self, request_id: str) -> list[dict[str, object]]:
        return [{"request_id": request_id, "code": 503}] if request_id == "known" else []

    def config(self) -> dict[str, object]:
        if self.reason == "broken":
            raise RuntimeError("the secret is hunter2")
        return {"admin_token": "***"}

    def explain_context(self) -> ExplainContext:
        return ExplainContext((), Settings())

    async def reload(self) -> Reloaded:
        self.reloads += 1
        changes: list[dict[str, object]] = [{"path": "routes.charges", "change": "added"}]
        return Reloaded(self.faults, self.warnings, changes, ("holdfast.yaml",))

    async def show_key(self, name: str) -> Shown | None:
        return Shown(RecordState.HELD, name, 0.0, 0.0, 0.0, 0)

    async def list_keys(self, wanted: KeyFilter, after: str) -> KeyPage | None:
        del wanted, after
        return KeyPage((), "")

    async def release_key(self, name: str, *, force: bool) -> Released:
        del force
        self.releases += 1
        return Released(Shown(RecordState.HELD, name, 0.0, 0.0, 0.0, 0), None)

    async def list_dead_letters(
        self, route: str | None, after: str, limit: int, *, newest: bool
    ) -> list[DeadLetterSummary]:
        raise NotImplementedError

    async def find_dead_letter(self, letter: str) -> DeadLetter | None:
        raise NotImplementedError

    async def drop_dead_letter(self, letter: str) -> bool | None:
        raise NotImplementedError

    async def drop_dead_letters(self, route: str | None, until: str) -> int:
        raise NotImplementedError

    async def replay_obstacle(
        self, letter: str, given: RawHeaders, *, force: bool
    ) -> Obstacle | None:
        raise NotImplementedError

    async def replay_dead_letter(
        self, letter: str, given: RawHeaders, *, force: bool
    ) -> Replayed | Obstacle:
        raise NotImplementedError

    async def list_deliveries(
        self,
        route: str | None,
        state: DeliveryState | None,
        reason: str | None,
        after: str,
        limit: int,
        *,
        newest: bool,
    ) -> tuple[Sequence[Delivery], str]:
        raise NotImplementedError

    async def find_delivery(self, name: str) -> tuple[Delivery, Sequence[DeliveryRun]] | None:
        raise NotImplementedError

    async def retry_obstacle(self, name: str, *, force: bool) -> TransitionRefusal | None:
        raise NotImplementedError

    async def retry_delivery(
        self, name: str, *, force: bool, by: str
    ) -> Delivery | TransitionRefusal:
        raise NotImplementedError

    async def cancel_delivery(self, name: str, *, by: str) -> Delivery | TransitionRefusal:
        raise NotImplementedError


KEY = f"/keys/{'0' * 32}"

Send = Callable[..., Awaitable[ClientResponse]]


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
async def port(application: Application) -> AsyncIterator[int]:
    runner = AdminSite(application, Listen("127.0.0.1", 9901)).runner()
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield int(runner.addresses[0][1])
    await runner.cleanup()


@pytest.fixture
async def send(port: int) -> AsyncIterator[Send]:
    async with ClientSession(f"http://127.0.0.1:{port}") as session:

        async def request(method: str, path: str, **headers: str) -> ClientResponse:
            fields = {name.replace("_", "-"): value for name, value in headers.items()}
            response = await session.request(method, path, headers=fields)
            await response.read()
            return response

        yield request


async def reason_of(response: ClientResponse) -> str:
    """The reason in a problem, whose form is checked on the way."""
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = await response.json(content_type=None)
    assert problem["status"] == response.status
    assert problem["title"]
    assert problem["detail"]
    return str(problem["type"].removeprefix("urn:holdfast:problem:"))


async def test_alive(send: Send) -> None:
    response = await send("GET", "/healthz")
    assert (response.status, await response.text()) == (200, "ok\n")


@pytest.mark.parametrize(
    ("reason", "status", "answer"),
    [
        pytest.param(None, 200, {"ready": True}, id="serving"),
        pytest.param("starting", 503, {"ready": False, "reason": "starting"}, id="starting"),
        pytest.param("draining", 503, {"ready": False, "reason": "draining"}, id="draining"),
    ],
)
async def test_ready(
    send: Send, application: Application, reason: str | None, status: int, answer: object
) -> None:
    application.reason = reason
    response = await send("GET", "/readyz")
    assert (response.status, await response.json()) == (status, answer)
    assert (await send("GET", "/healthz")).status == 200, "alive all the same"


async def test_metrics_come_in_the_format_asked_for(send: Send) -> None:
    plain = await send("GET", "/metrics")
    assert plain.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert await plain.read() == b"holdfast_build_info 1\n"
    modern = await send("GET", "/metrics", Accept="application/openmetrics-text;version=1.0.0")
    assert modern.headers["Content-Type"].startswith("application/openmetrics-text")


async def test_status_and_configuration(send: Send) -> None:
    assert await (await send("GET", "/status")).json() == {"routes": {"charges": {"in_flight": 3}}}
    assert await (await send("GET", "/config?reveal=true")).json() == {"admin_token": "***"}


async def test_reload_with_warnings_and_what_changed(send: Send, application: Application) -> None:
    application.warnings = ["holdfast.yaml:3:1: routes: never reached"]
    response = await send("POST", "/-/reload")
    assert response.status == 200
    assert await response.json() == {
        "result": "reloaded",
        "files": ["holdfast.yaml"],
        "changes": [{"path": "routes.charges", "change": "added"}],
        "warnings": ["holdfast.yaml:3:1: routes: never reached"],
    }
    assert application.reloads == 1


async def test_a_refused_reload_shows_what_check_prints(
    send: Send, application: Application
) -> None:
    application.faults = ["holdfast.yaml:7:5: routes[0].timeout: 30 has no unit; write 30s"]
    application.warnings = ["holdfast.yaml:3:1: routes: never reached"]
    response = await send("POST", "/-/reload")
    assert response.status == 422
    assert await reason_of(response) == "config"
    content = await response.json(content_type=None)
    assert content["faults"] == application.faults
    assert content["warnings"] == application.warnings


@pytest.mark.parametrize(
    ("method", "path", "status", "reason", "allow"),
    [
        pytest.param("GET", "/", 404, "not_found", None, id="nothing at the root"),
        pytest.param("GET", "/v1/charges", 404, "not_found", None, id="nothing is proxied"),
        pytest.param("GET", "/-/reload", 405, "method", "POST", id="a GET changes nothing"),
        pytest.param("POST", "/status", 405, "method", "GET, HEAD", id="status is to be read"),
        pytest.param("OPTIONS", "/status", 405, "method", "GET, HEAD", id="no preflight passes"),
        pytest.param("DELETE", "/keys", 405, "method", "GET, HEAD", id="not all keys at once"),
        pytest.param("GET", "/keys/", 404, "not_found", None, id="no key without a name"),
        pytest.param("POST", KEY, 405, "method", "DELETE, GET, HEAD", id="no key is made here"),
    ],
)
async def test_what_there_is_not(
    *, send: Send, method: str, path: str, status: int, reason: str, allow: str | None
) -> None:
    response = await send(method, path)
    assert response.status == status
    assert await reason_of(response) == reason
    assert response.headers.get("Allow") == allow


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/status", "/config", KEY])
async def test_head_is_get_without_a_body(send: Send, path: str) -> None:
    response = await send("HEAD", path)
    assert (response.status, await response.read()) == (200, b"")
    assert int(response.headers["Content-Length"]) > 0


OPEN = [("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/metrics")]
GUARDED = [
    ("GET", "/status"),
    ("GET", "/config"),
    ("POST", "/-/reload"),
    ("GET", "/attempts?request_id=known"),
    ("GET", KEY),
    ("DELETE", KEY),
    ("HEAD", "/status"),
    ("HEAD", KEY),
]


class TestToken:
    @pytest.mark.parametrize(("method", "path"), OPEN)
    async def test_probes_and_scrapers_need_none(
        self, send: Send, application: Application, method: str, path: str
    ) -> None:
        application.asked_token = "s3cret"
        assert (await send(method, path)).status == 200
        assert (await send(method, path, Authorization="Bearer wrong")).status == 200

    @pytest.mark.parametrize(("method", "path"), GUARDED)
    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            pytest.param({}, 401, id="none"),
            pytest.param({"Authorization": "Bearer wrong"}, 401, id="a wrong one"),
            pytest.param({"Authorization": "Bearer s3crét"}, 401, id="one with other letters"),
            pytest.param({"Authorization": "Basic czNjcmV0"}, 401, id="another scheme"),
            pytest.param({"Authorization": "Bearer s3cret"}, 200, id="the right one"),
        ],
    )
    async def test_the_rest_does(
        self,
        *,
        send: Send,
        application: Application,
        method: str,
        path: str,
        headers: dict[str, str],
        status: int,
    ) -> None:
        application.asked_token = "s3cret"
        response = await send(method, path, **headers)
        assert response.status == status
        assert ("WWW-Authenticate" in response.headers) == (status == 401)
        assert application.reloads == (status == 200 and path == "/-/reload")
        assert application.releases == (status == 200 and method == "DELETE")
        if status == 401 and method != "HEAD":
            assert await reason_of(response) == "token"
            assert "s3cret" not in await response.text()

    @pytest.mark.parametrize(("method", "path"), GUARDED)
    async def test_without_one_configured_none_is_asked(
        self, send: Send, method: str, path: str
    ) -> None:
        assert (await send(method, path)).status == 200

    async def test_a_changed_token_holds_at_once(
        self, send: Send, application: Application
    ) -> None:
        application.asked_token = "old"
        assert (await send("GET", "/status", Authorization="Bearer old")).status == 200
        application.asked_token = "new"
        assert (await send("GET", "/status", Authorization="Bearer old")).status == 401


class TestStrangers:
    @pytest.mark.parametrize(("method", "path"), OPEN + GUARDED[:5])
    @pytest.mark.parametrize(
        ("headers", "reason"),
        [
            pytest.param({"Host": "evil.example"}, "foreign_host", id="a rebound name"),
            pytest.param({"Origin": "http://evil.example"}, "foreign_origin", id="another site"),
            pytest.param({"Origin": "null"}, "foreign_origin", id="a sandboxed page"),
            pytest.param({"Sec_Fetch_Site": "cross-site"}, "foreign_origin", id="an image tag"),
        ],
    )
    async def test_are_turned_away_everywhere(
        self,
        *,
        send: Send,
        application: Application,
        method: str,
        path: str,
        headers: dict[str, str],
        reason: str,
    ) -> None:
        response = await send(method, path, **headers)
        assert response.status == 403
        assert await reason_of(response) == reason
        assert application.reloads == application.releases == 0

    @pytest.mark.parametrize(
        "headers",
        [
            pytest.param({"Host": "localhost:9901"}, id="localhost"),
            pytest.param({"Host": "localhost", "Origin": "http://localhost"}, id="our own page"),
            pytest.param({"Sec_Fetch_Site": "none"}, id="typed into the address bar"),
            pytest.param({"Sec_Fetch_Site": "same-origin"}, id="our own page, says the browser"),
        ],
    )
    async def test_friends_are_not(self, send: Send, headers: dict[str, str]) -> None:
        assert (await send("POST", "/-/reload", **headers)).status == 200


async def exchange_bytes(port: int, request: bytes) -> bytes:
    """Send *request*, and read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(PATIENCE):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(
            b"GET /healthz HTTP/1.0\r\n\r\n",
            b"HTTP/1.0 200",
            id="an old load balancer sends no Host",
        ),
        pytest.param(
            b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n",
            b"HTTP/1.0 400",
            id="a new client must",
        ),
        pytest.param(
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n",
            b"HTTP/1.0 400",
            id="two hosts are one too many",
        ),
        pytest.param(
            b"POST /-/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n",
            b"HTTP/1.1 413",
            id="a large body is refused before it is sent",
        ),
        pytest.param(b"nonsense\r\n\r\n", b"HTTP/1.0 400", id="not HTTP at all"),
    ],
)
async def test_odd_requests(port: int, request_bytes: bytes, status: bytes) -> None:
    answer = await exchange_bytes(port, request_bytes)
    assert answer.startswith(status + b" ")


async def test_a_body_nobody_asked_for_is_not_waited_for(
    port: int, application: Application
) -> None:
    endless = (
        b"POST /-/reload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    )
    answer = await exchange_bytes(port, endless)
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert application.reloads == 1


async def test_a_stuck_client_disturbs_nobody(port: int, send: Send) -> None:
    _, stuck = await asyncio.open_connection("127.0.0.1", port)
    stuck.write(b"GET /status HTTP/1.1\r\nHost: loc")
    await stuck.drain()
    assert (await send("GET", "/healthz")).status == 200
    stuck.close()
    await stuck.wait_closed()


async def test_an_error_of_ours_shows_in_the_log_and_not_in_the_answer(
    send: Send, application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    application.reason = "broken"
    with caplog.at_level(logging.ERROR, "holdfast.admin"):
        response = await send("GET", "/config")
    assert response.status == 500
    assert await reason_of(response) == "internal"
    assert "hunter2" not in await response.text()
    assert "hunter2" in caplog.text


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/status", "/nowhere"])
async def test_every_answer_is_safe_to_show_in_a_browser(send: Send, path: str) -> None:
    headers = (await send("GET", path)).headers
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert headers["Server"] == "holdfast"
    assert "Access-Control-Allow-Origin" not in headers
