"""The client of a Semel service."""

import base64
import http.client
import json
import math
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlsplit

from .errors import SemelError
from .execution import Execution
from .keys import Key
from .types import Begun, Failure, Problem, Record

T = TypeVar("T")

_TRANSIENT = {"overloaded", "body_too_slow", "store_unavailable", "unknown", "closed", "internal", "body_unreadable"}


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What became of a call."""

    value: T
    """What the handler returned, now or the first time."""
    replayed: bool
    """The handler didn't run now: this is the recorded answer."""
    record: Record


class Client:
    """The client of a service. Threads may share it. Times are in seconds.

    token is sent to nobody who hasn't answered as a service; it may be a function. timeout is for
    one try, tries is how often a request is sent if no answer comes, and pause comes before the
    second try and doubles, with jitter. :meth:`once` is all that most programs need.
    """

    def __init__(self, url: str, *, token: str | Callable[[], str] | None = None, timeout: float = 10, tries: int = 4, pause: float = 0.1, context: Any = None):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not an http or https URL")
        self._parts, self._path, self._context = parts, parts.path.rstrip("/"), context
        self.timeout, self.tries, self.pause, self._token = timeout, tries, pause, token
        self._met = False

    def once(self, operation: str, key: str | Key, work: Callable[[Execution], T], *, wait: float = 0, **call: Any) -> Outcome[T]:
        """Runs `work` once for each key: every retry gets the same outcome.

        `work` gets the execution, and should stop once that is lost: another may have the right
        then. `wait` is how long a duplicate waits for the first call. `call` has the other
        members of a beginning, such as payload and attributes. Raises SemelError if there is no
        result.
        """
        if isinstance(key, str):
            return self._once(operation, key, work, wait, call)
        try:
            outcome = self._once(operation, key.use(), work, wait, call)
        except SemelError as e:
            if e.code in ("rejected", "failed"):
                key.settled()
            raise
        key.settled()
        return outcome

    def _once(self, operation: str, key: str, work: Callable[[Execution], T], wait: float, call: dict[str, Any]) -> Outcome[T]:
        began = time.monotonic()
        begun = self.begin(operation, key, wait=wait, **call)
        if begun["decision"] != "execute":
            return Outcome(value_of(begun["record"]), True, begun["record"])
        record = Execution(self, begun, began).run(work)
        return Outcome(value_of(record), False, record)

    def begin(self, operation: str, key: str, *, wait: float = 0, **call: Any) -> Begun:
        """Decides what a delivery gets: `execute` with an execution to renew and end, or `replay`
        with the record. Everything else is raised, and nothing may be executed then."""
        headers = {"Semel-Holder": str(uuid.uuid4())}
        if wait:
            headers["Prefer"] = f"wait={math.ceil(wait)}"
        begun: Begun = self.send(f"/v1/operations/{quote(operation, '')}/executions", {**call, "key": key}, lost="store_unavailable", headers=headers, wait=wait)
        record = begun.get("record", {})
        if record.get("operation") != operation or record.get("idempotency_key") != key:
            raise SemelError("store_unavailable", "the answer is about another call")
        return begun

    def renew(self, execution: str, **how: Any) -> float:
        """Extends the lease, and returns its length. Code `lease_lost`: the right is gone."""
        return self._on(execution, "renew", {}, **how)["lease_ms"] / 1000

    def complete(self, execution: str, result: Any = None, **how: Any) -> Record:
        """Ends an execution with its result."""
        return self.end(execution, "complete", {"result": result}, **how)

    def abandon(self, execution: str, reason: str) -> Record:
        """Gives up the execution: ledger and policy say what becomes of the call."""
        return self.end(execution, "abandon", {"reason": reason})

    def end(self, execution: str, how: str, body: Any, **more: Any) -> Record:
        """Ends an execution: complete, reject for good, fail, abort with the proof that nothing was
        done, abandon, or hold until somebody settles it. Without an answer the outcome exists, but
        isn't recorded: `unknown`."""
        try:
            return self._on(execution, how, body, **more)["record"]
        except SemelError as e:
            if e.code in _TRANSIENT:
                raise SemelError("unknown", f"the outcome is not recorded: {e}") from e
            raise

    def record(self, name: str) -> Record:
        """The record with this name, as refusals and records have it."""
        return self.send(f"/v1/records/{quote(name, '')}", None, lost="store_unavailable")["record"]

    def _on(self, execution: str, what: str, body: Any, **how: Any) -> Any:
        return self.send(f"/v1/executions/{quote(execution, '')}/{what}", body, lost="unknown", **how)

    def send(self, path: str, body: Any, *, lost: str, headers: dict[str, str] | None = None, wait: float = 0,
             tries: int | None = None, more: Callable[[], bool] | None = None, limit: float | None = None) -> Any:
        """Sends a request until an answer comes. Every request here may be repeated."""
        n = 0
        while True:
            n += 1
            try:
                return self._try(path, body, lost, headers or {}, min(self.timeout + wait, limit or math.inf))
            except (OSError, http.client.HTTPException, ValueError) as e:
                error = SemelError(lost, "the service did not answer")
                error.__cause__ = e
            except SemelError as e:
                error = e
            again = error.status is None or error.status >= 500 or error.code in _TRANSIENT
            if not again or (n >= (tries or self.tries) and not (more and more())):
                raise error
            time.sleep(error.retry_after + random.random() * min(self.pause * 2 ** (n - 1), 5))

    def _try(self, path: str, body: Any, lost: str, headers: dict[str, str], timeout: float) -> Any:
        headers = {"Accept": "application/json, application/problem+json", **headers}
        if self._token is not None:
            if not self._met:
                self._ask("GET", "/v1/operations/", None, {}, lost, timeout)
            headers["Authorization"] = "Bearer " + (self._token if isinstance(self._token, str) else self._token())
        if body is not None:
            headers["Content-Type"] = "application/json"
        status, answer, text = self._ask("GET" if body is None else "POST", path, body, headers, lost, timeout)
        kind = answer.get_content_type()
        if 200 <= status < 300 and kind == "application/json":
            return json.loads(text)
        if kind != "application/problem+json":
            raise SemelError(lost, f"the answer (status {status}) doesn't come from the API", status=status)
        p: Problem = json.loads(text)
        asked = answer.get("Retry-After", "0")
        raise SemelError(p["code"], p["detail"], status=p["status"], action=p.get("action"), record=p.get("record", ""), challenge=p.get("challenge"),
                         retry_after=p.get("retry_after") or (int(asked) if asked.isdigit() else 0))

    def _ask(self, method: str, path: str, body: Any, headers: dict[str, str], lost: str, timeout: float) -> tuple[int, Any, bytes]:
        """Asks, and returns an answer that has the service's mark."""
        if self._parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(self._parts.hostname, self._parts.port, timeout=timeout, context=self._context)
        else:
            connection = http.client.HTTPConnection(self._parts.hostname, self._parts.port, timeout=timeout)
        try:
            connection.request(method, self._path + path, None if body is None else json.dumps(body).encode(), headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        self._met = "Semel-Api" in answer.headers
        if not self._met:
            raise SemelError(lost, f"a stranger answered (status {answer.status}), not a Semel service", status=answer.status)
        return answer.status, answer.headers, text


def value_of(record: Record) -> Any:
    """What a record's call returned. Raises if it didn't return."""
    name = record["id"]
    if record["status"] == "processing":
        raise SemelError("unknown", record.get("held_reason", "the outcome is not known"), record=name)
    disposition = record.get("disposition", "failed")
    if disposition != "completed":
        error: Failure = record.get("error") or {}
        raise SemelError(disposition, error.get("message") or f"the call was {disposition}", action="stop", reason=error.get("code", ""), record=name)
    if record.get("result_kept") is False:
        raise SemelError("result_not_kept", "the call ran, and its result was not kept", action="stop", record=name)
    if "result_base64" in record:
        return base64.b64decode(record["result_base64"])
    return record.get("result")
