"""The client of a Semel service."""

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
from .execution import Execution, kept, uncertain
from .keys import Key
from .types import Begun, Failure, Problem, Record

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What became of a call."""

    value: T
    """What the handler returned, now or the first time, as JSON gives it back."""
    replayed: bool
    """The handler didn't run now: this is the recorded answer."""
    record: Record


class Client:
    """The client of a service. Threads may share it. Times are in seconds.

    token is sent to nobody who hasn't answered as a service; it may be a function. timeout is for
    one try, tries is how often a request is sent if no answer comes, and pause bounds the first
    pause between tries, which doubles. :meth:`once` is all that most programs need.
    """

    def __init__(self, url: str, *, token: str | Callable[[], str] | None = None, timeout: float = 10, tries: int = 4, pause: float = 0.1, context: Any = None):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not an http or https URL")
        self._parts, self._base, self._context = parts, parts.path.rstrip("/"), context
        self.timeout, self.tries, self.pause, self._token = timeout, tries, pause, token
        self._met: set[str] = set()  # the parts of the API that have given a marked answer

    def once(self, operation: str, key: str | Key, work: Callable[[Execution], T], *, wait: float = 0, **call: Any) -> Outcome[T]:
        """Runs `work` once for each key: every retry gets the same outcome.

        `work` gets the execution, and should stop once that is lost: another may have the right
        then. `wait` is how long a duplicate waits for the first call. `call` has the other
        members of a beginning, such as payload and attributes. Raises SemelError if there is no
        result: its action says what to do.
        """
        if isinstance(key, str):
            return self._once(operation, key, work, wait, call)
        try:
            outcome = self._once(operation, key.use(), work, wait, call)
        except SemelError as e:
            if e.code == "rejected":  # what failed now may run again, if the operation says so
                key.settled()
            raise
        key.settled()
        return outcome

    def _once(self, operation: str, key: str, work: Callable[[Execution], T], wait: float, call: dict[str, Any]) -> Outcome[T]:
        began = time.monotonic()
        begun = self.begin(operation, key, wait=wait, **call)
        if begun["decision"] == "replay":
            return Outcome(value_of(begun["record"]), True, begun["record"])
        record, result, cause = Execution(self, begun, began).run(work)
        if cause is None and record.get("disposition") == "completed" and record.get("result_kept") is False:
            return Outcome(result, False, record)
        try:
            return Outcome(value_of(record), False, record)
        except SemelError as e:
            raise e from cause

    def begin(self, operation: str, key: str, *, wait: float = 0, **call: Any) -> Begun:
        """Decides what a delivery gets: `execute` with an execution to renew and end, or `replay`
        with the record. Everything else is raised, and nothing may be executed then."""
        # The holder's name is the same in all tries, so that a lost answer is given again.
        headers = {"Semel-Holder": str(uuid.uuid4())}
        if wait:
            headers["Prefer"] = f"wait={math.ceil(wait)}"
        begun: Begun = self.send(f"/v1/operations/{quote(operation, '')}/executions", {**call, "key": key}, "store_unavailable", headers=headers, wait=wait)
        record, decision = begun.get("record", {}), begun.get("decision")
        right = decision == "replay" or decision == "execute" and begun.get("execution") and begun.get("lease_ms")
        if not right or record.get("operation") != operation or record.get("idempotency_key") != key:
            raise SemelError("store_unavailable", "the answer is not about this call")
        return begun

    def renew(self, execution: str, **how: Any) -> float:
        """Extends the lease, and returns its length. Code `lease_lost`: the right is gone."""
        lease: int = self.on(execution, "renew", {}, **how).get("lease_ms", 0)
        if lease <= 0:
            raise SemelError("unknown", "the answer has no lease")
        return lease / 1000

    def complete(self, execution: str, result: Any = None) -> Record:
        """Ends an execution with its result."""
        return self.end(execution, "complete", {"result": result})

    def abandon(self, execution: str, reason: str) -> Record:
        """Gives up the execution: ledger and policy say what becomes of the call."""
        return self.end(execution, "abandon", {"reason": reason})

    def end(self, execution: str, how: str, body: Any, **sending: Any) -> Record:
        """Ends an execution: complete, reject for good, fail, abort with the proof that nothing was
        done, abandon, or hold until somebody settles it. Code `unknown` means that the outcome
        exists, but isn't recorded."""
        try:
            record: Record | None = self.on(execution, how, body, **sending).get("record")
            if not record or "id" not in record:
                raise SemelError("unknown", "the answer has no record")
            return record
        except SemelError as e:
            if uncertain(e):
                raise SemelError("unknown", f"the outcome is not recorded: {e}") from e
            raise

    def record(self, name: str) -> Record:
        """The record with this name, as refusals and records have it."""
        return self.send(f"/v1/records/{quote(name, '')}", None, "store_unavailable")["record"]

    def on(self, execution: str, what: str, body: Any, **how: Any) -> Any:
        """Sends a request about an execution."""
        return self.send(f"/v1/executions/{quote(execution, '')}/{what}", body, "unknown", **how)

    def send(self, path: str, body: Any, lost: str, *, headers: dict[str, str] | None = None, wait: float = 0,
             tries: int | None = None, more: Callable[[], bool] | None = None, limit: float = math.inf) -> Any:
        """Sends a request until an answer comes, or raises an error with the code `lost`.

        Every request of this client may be repeated. limit bounds one try; after tries, more
        says whether to go on.
        """
        text = None if body is None else json.dumps(body, allow_nan=False).encode()
        n = 0
        while True:
            n += 1
            try:
                return self._try(path, text, lost, headers or {}, time.monotonic() + min(self.timeout + wait, limit))
            except (OSError, http.client.HTTPException, ValueError) as e:
                error = SemelError(lost, "the service did not answer")
                error.__cause__ = e
            except SemelError as e:
                error = e
            again = uncertain(error) and error.retry_after <= 30
            if error.stranger:
                again = error.status is None or error.status >= 500 or error.status == 429
            if not again or (n >= (tries or self.tries) and not (more and more())):
                raise error
            time.sleep(error.retry_after + random.random() * min(self.pause * 2 ** min(n - 1, 20), 2))

    def _try(self, path: str, body: bytes | None, lost: str, headers: dict[str, str], until: float) -> Any:
        headers = {"Accept": "application/json, application/problem+json", **headers}
        if self._token is not None:
            if _part(path) not in self._met:
                self._ask("GET", _part(path), None, {}, lost, until)
            try:
                headers["Authorization"] = "Bearer " + (self._token if isinstance(self._token, str) else self._token())
            except Exception as e:
                raise SemelError(lost, "the program has no token for the request") from e
        if body is not None:
            headers["Content-Type"] = "application/json"
        status, answer, text = self._ask("GET" if body is None else "POST", path, body, headers, lost, until)
        kind = answer.get_content_type()
        if 200 <= status < 300 and kind == "application/json":
            return json.loads(text)
        if kind != "application/problem+json":
            raise SemelError(lost, f"the answer (status {status}) doesn't come from the API", status=status, stranger=True)
        p: Problem = json.loads(text)
        if not p.get("code"):
            raise SemelError(lost, f"the answer (status {status}) is not a valid problem", status=status, stranger=True)
        asked = answer.get("Retry-After", "0")
        raise SemelError(p["code"], p.get("detail", ""), status=status, action=p.get("action"), record=p.get("record", ""), challenge=p.get("challenge"),
                         retry_after=p.get("retry_after") or (int(asked) if asked.isdigit() else 0))

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str], lost: str, until: float) -> tuple[int, Any, bytes]:
        """Asks, and returns an answer that has the service's mark, or refuses for the time being."""
        left = lambda: max(until - time.monotonic(), 0.001)  # noqa: E731
        if self._parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(self._parts.hostname, self._parts.port, timeout=left(), context=self._context)
        else:
            connection = http.client.HTTPConnection(self._parts.hostname, self._parts.port, timeout=left())
        try:
            connection.connect()
            connection.sock.settimeout(left())
            connection.request(method, self._base + path, body, headers)
            connection.sock.settimeout(left())
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        marked = answer.headers.get("Semel-Api", "").endswith("/v1")
        if marked:
            self._met.add(_part(path))
        elif answer.headers.get_content_type() != "application/problem+json" or answer.status not in (408, 413, 429, 503):
            self._met.discard(_part(path))
            raise SemelError(lost, f"a stranger answered (status {answer.status}), not a Semel service", status=answer.status, stranger=True)
        return answer.status, answer.headers, text


def _part(path: str) -> str:
    """The part of the API that a path is in. A service may have some at an address, and others not."""
    return "/".join(path.split("/")[:3]) + "/"


def value_of(record: Record) -> Any:
    """What a record's call returned. Raises if it didn't return."""
    name = record["id"]
    if record["status"] == "processing":
        raise SemelError("unknown", record.get("held_reason", "the outcome is not known"), record=name)
    if record["status"] == "failed" and record.get("result_kept") is not False:
        disposition = record.get("disposition", "failed")
        error: Failure = record.get("error") or {}
        raise SemelError("aborted" if disposition == "abandoned" else disposition, error.get("message") or f"the call was {disposition}", reason=error.get("code", ""), record=name)
    return kept(record, name)
