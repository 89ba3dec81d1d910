"""The right to execute one call."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from .errors import Ended, SemelError, rejected
from .types import Begun, Record

if TYPE_CHECKING:
    from .client import Client

T = TypeVar("T")

_PATHS = {"rejected": "reject", "failed": "fail", "aborted": "abort", "unknown": "hold"}
_ACTIONS = {"unknown": "verify", "aborted": "wait"}


class Execution:
    """The right to execute one call. Its lease is renewed every third of its length.

    `name` names it in the API, `fence` rises with every holder, so give it to what can refuse an
    older one, and `attempt` counts from 1.
    """

    def __init__(self, client: "Client", begun: Begun, began: float):
        self.name = begun["execution"]
        self.fence = begun.get("fence", 0)
        self.attempt = begun.get("attempt", 1)
        self._client, self._since, self._lease = client, began, begun["lease_ms"] / 1000
        self._financial = begun.get("financial", False)
        self._ledger = {e["name"]: e["state"] for e in begun["record"]["effects"]}
        self._lost: SemelError | None = None
        self._stop = threading.Event()

    @property
    def lost(self) -> bool:
        """Whether the right to execute is gone: another may have it, so stop."""
        return self._lost is not None

    def run(self, work: Callable[["Execution"], Any]) -> Record:
        """Does the work and ends the execution. Client.once calls it."""
        # Nobody knows when the lease began, so it must have time left before the work begins.
        if self._age() > self._lease / 3 and not self._renew():
            raise SemelError("store_unavailable", "the lease could not be renewed before the work") from self._lost
        beat = threading.Thread(target=self._beat, daemon=True)
        beat.start()
        try:
            result = work(self)
        except BaseException as e:
            self._end(beat)
            raise self._failed(e) from e
        self._end(beat)
        if self._open():
            return self._client.end(self.name, "hold", {"reason": "the handler returned a result and left an effect without one"})
        return self._client.complete(self.name, result, more=self._alive)

    def _failed(self, e: BaseException) -> BaseException:
        """Ends the execution by the error of its handler, and returns what the caller gets."""
        message = str(e)[:1000] or type(e).__name__
        ended = e if isinstance(e, Ended) else None
        how = ended.mark if ended else "unknown" if self._open() else "failed" if self._done() or self._financial else "aborted"
        if how != "rejected" and self._open():
            how = "unknown"
        if self._lost and (not ended or how == "failed"):
            return self._lost  # policy settles what the lease leaves
        code = ended.code if ended else ""
        body = {"reason": message} if how == "unknown" else {"error": {"code": code, "message": message}}
        record = self._client.end(self.name, _PATHS[how], body, more=self._alive)
        if not isinstance(e, Exception):
            return e  # the program is being stopped
        return SemelError(how, message, action=_ACTIONS.get(how, "stop"), reason=code, record=record["id"])

    def effect(self, name: str, call: Callable[[str], T]) -> T:
        """Calls a provider under the ledger.

        The intent is durable before `call` runs, which gets the key for the provider. A later
        attempt gets the recorded result, and a call without a known result is never made again.
        Raise `rejected` from `call` if the provider refused for good, and `nothing_done` if
        nothing was sent. Every other error leaves the effect without a result.
        """
        if self._ledger.get(name) == "started":
            raise Ended("unknown", f"effect {name} was started, and its result is not known")
        ef = self._start(name)
        if ef["state"] == "confirmed":
            return ef.get("result")
        if ef["state"] == "refuted" and ef.get("error"):
            raise rejected(ef["error"].get("code", ""), ef["error"].get("message", ""))
        self._ledger[name] = "started"
        try:
            result = call(ef["key"])
        except Ended as e:
            if e.mark in ("rejected", "aborted"):
                error = {"error": {"code": e.code, "message": str(e)}} if e.mark == "rejected" else {}
                self._send("effects/settle", {"name": name, "state": "refuted", **error})
                self._ledger[name] = "refuted"
            raise
        self._send("effects/settle", {"name": name, "state": "confirmed", "result": result})
        self._ledger[name] = "confirmed"
        return result

    def _start(self, name: str) -> Any:
        if self._age() >= self._lease * 0.9:
            self._lose(SemelError("lease_lost", "the lease could not be renewed in time"))
        if self._lost:
            raise self._lost
        try:
            return self._send("effects", {"name": name}, tries=1)
        except SemelError as e:
            if e.code == "effect_unknown":
                raise Ended("unknown", str(e)) from e
            if e.status is not None and e.status < 500:
                raise
        # The answer was lost, and nothing was called yet.
        return self._send("effects", {"name": name, "not_called": True})

    def _send(self, what: str, body: Any, **how: Any) -> Any:
        return self._client.send(f"/v1/executions/{quote(self.name, '')}/{what}", body, lost="unknown", **how)

    def _open(self) -> bool:
        return "started" in self._ledger.values()

    def _done(self) -> bool:
        return "confirmed" in self._ledger.values()

    def _age(self) -> float:
        return time.monotonic() - self._since

    def _alive(self) -> bool:
        return self._age() < self._lease

    def _end(self, beat: threading.Thread) -> None:
        self._stop.set()
        beat.join()

    def _lose(self, why: SemelError) -> None:
        self._lost = self._lost or why

    def _beat(self) -> None:
        """Renews the lease at each third of it, until the execution ends."""
        while not self._stop.wait(max(self._lease / 3 - self._age(), self._lease / 30)):
            if not self._renew() and self._age() >= self._lease * 0.9:
                self._lose(SemelError("lease_lost", "the lease could not be renewed in time"))
            if self._lost:
                return

    def _renew(self) -> bool:
        began = time.monotonic()
        try:
            left = max(self._lease * 0.9 - self._age(), self._lease / 30)
            self._lease = self._client.renew(self.name, tries=1, limit=left)
            self._since = began
            return True
        except SemelError as e:
            if e.code in ("lease_lost", "already_ended", "not_found"):
                self._lose(SemelError("lease_lost", str(e)))
            return False
