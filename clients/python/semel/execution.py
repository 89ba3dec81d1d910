"""The right to execute one call."""

import base64
import json
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import Ended, SemelError, rejected, unknown
from .types import Begun, Effect, Record

if TYPE_CHECKING:
    from .client import Client

T = TypeVar("T")

_PATHS = {"rejected": "reject", "failed": "fail", "aborted": "abort", "unknown": "hold", "abandoned": "abandon"}
_TRANSIENT = {"overloaded", "body_too_slow", "store_unavailable", "unknown", "closed", "internal", "body_unreadable"}


def uncertain(e: BaseException) -> bool:
    """Whether the service may have done what it was asked, or may do it if it is asked again."""
    return isinstance(e, SemelError) and e.code in _TRANSIENT


def kept(of: Record | Effect, record: str) -> Any:
    """The result of a call or an effect, if it was kept."""
    if of.get("result_kept") is False:
        raise SemelError("result_not_kept", "it ran, and its result was not kept", record=record)
    if "result_base64" in of:
        return base64.b64decode(of["result_base64"])
    return of.get("result")


class Execution:
    """The right to execute one call. Its lease is renewed every third of its length.

    `name` names it in the API, `fence` rises with every holder, so give it to what can refuse an
    older one, and `attempt` counts from 1. Threads may share it.
    """

    def __init__(self, client: "Client", begun: Begun, since: float):
        self.name = begun["execution"]
        self.fence = begun.get("fence", 0)
        self.attempt = begun.get("attempt", 1)
        self._client, self._begun, self._since, self._lease = client, begun, since, begun["lease_ms"] / 1000
        self._ledger: dict[str, str] = {e["name"]: e["state"] for e in begun["record"]["effects"]}
        self._unsure: set[str] = set()  # effects that were asked for without an answer: they weren't called
        self._not_started: BaseException | None = None
        self._why: SemelError | None = None
        self._mutex = threading.Lock()
        self._stop = threading.Event()

    @property
    def lost(self) -> SemelError | None:
        """Why the right to execute is gone, or None: another may have it, so stop."""
        if self._why is None and not self._stop.is_set() and self._age() >= self._lease * 0.9:
            self._why = SemelError("lease_lost", "the lease could not be renewed in time")
        return self._why

    def run(self, work: Callable[["Execution"], Any]) -> tuple[Record, Any, BaseException | None]:
        """Does the work and ends the execution. Client.once calls it."""
        # Nobody knows when the lease began, so it must have time left before the work begins.
        tries = 0
        while self._age() > self._lease / 3:
            tries += 1
            if tries <= 4 and self._renew():
                continue
            raise self._give_back() from self._why
        threading.Thread(target=self._beat, daemon=True).start()
        result, cause = None, None
        try:
            result = work(self)
            # What returned may have had an effect, so it isn't aborted for a result that nobody can send.
            try:
                json.dumps(result, allow_nan=False)
            except (TypeError, ValueError) as e:
                raise unknown(f"the result can't be written as JSON: {e}") from e
            if self._has("started"):
                raise unknown("the handler returned a result and left an effect without one")
        except BaseException as e:
            cause = e
        lost = self.lost
        self._stop.set()
        how = "completed" if cause is None else self._verdict(cause)
        if lost and cause is not None and (how == "failed" or not isinstance(cause, Ended)):
            raise lost from cause  # policy settles what the lease leaves
        record = self._end(how, result, cause)
        if cause is not None and not isinstance(cause, Exception):
            raise cause  # the program is being stopped
        return record, result, cause

    def _give_back(self) -> SemelError:
        try:
            self._client.end(self.name, "abort", {"error": {"message": "the lease could not be renewed before the work"}}, tries=1)
        except SemelError:
            pass  # the lease ends, and policy settles the call
        return SemelError("store_unavailable", "the lease could not be renewed before the work")

    def _end(self, how: str, result: Any, cause: BaseException | None) -> Record:
        for name in self._unsure:
            self._refute(name)
        alive = lambda: self._age() < self._lease  # noqa: E731
        # Renewals have stopped, so that an end that never gets through doesn't keep the call in flight.
        if how == "completed":
            return self._client.end(self.name, "complete", {"result": result}, more=alive)
        message = str(cause)[:300] or type(cause).__name__
        body = {"reason": message} if how in ("unknown", "abandoned") else {"error": {"code": getattr(cause, "code", "") if isinstance(cause, Ended) else "", "message": message}}
        return self._client.end(self.name, _PATHS[how], body, more=alive)

    def _verdict(self, e: BaseException) -> str:
        """How an attempt ends by the error of its handler."""
        retries = self._begun.get("on_abandoned") == "retry"
        if not isinstance(e, Exception) or e is self._not_started and retries:
            return "abandoned"  # the work didn't fail, or nobody knows whether it did
        if isinstance(e, Ended) and e.mark == "rejected":
            return e.mark
        if self._has("started"):
            return "unknown"
        if isinstance(e, Ended):
            return e.mark
        return "failed" if self._has("confirmed") or self._begun.get("financial") else "aborted"

    def effect(self, name: str, call: Callable[[str], T]) -> T:
        """Calls a provider under the ledger.

        The intent is durable before `call` runs, which gets the key for the provider. A later
        attempt gets the recorded result, and a call without a known result is never made again.
        Raise `rejected` from `call` if the provider refused for good, `nothing_done` if nothing was
        sent, and `failed` if the provider says that it failed. Every other error leaves the effect
        without a result.
        """
        with self._mutex:
            if self._stop.is_set():
                raise SemelError("already_ended", "the execution has ended")
            before = self._ledger.get(name)
            if before == "started":
                raise unknown(f"effect {name} was started, and its result is not known")
            self._ledger[name] = "started"  # the same effect, started beside this one, must not be called too
        try:
            ef = self._start(name)
        except SemelError:
            with self._mutex:
                if before:
                    self._ledger[name] = before
                else:
                    del self._ledger[name]
            raise
        if ef["state"] != "started":
            self._ledger[name] = ef["state"]
        if ef["state"] == "confirmed":
            return kept(ef, self._begun["record"]["id"])
        if ef["state"] == "refuted":
            error = ef.get("error") or {}
            raise rejected(error.get("code", ""), error.get("message", ""))
        try:
            result = call(ef["key"])
        except Ended as e:
            if e.mark != "unknown":
                self._found(name, "refuted", {"error": {"code": e.code, "message": str(e)[:300]}} if e.mark == "rejected" else {})
            raise
        settled = self._found(name, "confirmed", {"result": result})
        return result if settled.get("result_kept") is False else kept(settled, self._begun["record"]["id"])

    def _start(self, name: str) -> Effect:
        if self.lost:
            raise self.lost
        try:
            ef = self._ask_to_start(name)
        except SemelError as e:
            self._judge(e)
            if uncertain(e):
                self._not_started = e
            if e.code == "effect_unknown":
                raise unknown(str(e)) from e
            raise
        self._unsure.discard(name)
        if ef["state"] == "started" and self.lost:
            # The answer took longer than the rest of the lease: another attempt may be at work.
            self._unsure.add(name)
            self._refute(name)
            raise self.lost
        return ef

    def _ask_to_start(self, name: str) -> Effect:
        if name not in self._unsure:
            try:
                return self._ask(name, {"name": name}, tries=1)
            except SemelError as e:
                if not uncertain(e):
                    raise
                self._unsure.add(name)
        return self._ask(name, {"name": name, "not_called": True})  # nothing was called yet

    def _ask(self, name: str, body: Any, **how: Any) -> Effect:
        ef: Effect = self._client.on(self.name, "effects", body, **how)
        if ef.get("name") != name or not ef.get("key"):
            raise SemelError("unknown", "the answer is about another effect, or has no key")
        return ef

    def _refute(self, name: str) -> None:
        """Records that an effect was never called."""
        try:
            self._settle(name, "refuted", tries=1)
        except SemelError:
            pass  # it stays started, and the next attempt is held

    def _found(self, name: str, state: str, more: dict[str, Any]) -> Effect:
        """Records what became of an effect that was called. The attempt may not go on without it."""
        try:
            return self._settle(name, state, more)
        except (SemelError, TypeError, ValueError) as e:
            raise unknown(f"the result of effect {name} is not recorded: {e}") from e

    def _settle(self, name: str, state: str, more: dict[str, Any] | None = None, tries: int | None = None) -> Effect:
        until = time.monotonic() + self._lease  # the lease is renewed meanwhile
        how: dict[str, Any] = {"tries": tries} if tries else {"more": lambda: self._age() < self._lease and time.monotonic() < until}
        ef: Effect = self._client.on(self.name, "effects/settle", {"name": name, "state": state, **(more or {})}, **how)
        self._ledger[name] = state
        return ef

    def _has(self, state: str) -> bool:
        with self._mutex:
            return state in self._ledger.values()

    def _age(self) -> float:
        return time.monotonic() - self._since

    def _judge(self, e: SemelError) -> None:
        """Keeps why the handler must stop, if a refusal means that its right is gone."""
        if e.code in ("lease_lost", "already_ended", "not_found") and self._why is None:
            self._why = SemelError("lease_lost", str(e))

    def _beat(self) -> None:
        """Renews the lease at each third of it, until the execution ends."""
        while not self._stop.wait(max(self._lease / 3 - self._age(), self._lease / 30)):
            self._renew(tries=1, limit=max(self._lease * 0.9 - self._age(), self._lease / 30))
            if self.lost:
                return

    def _renew(self, **how: Any) -> bool:
        began = time.monotonic()
        try:
            self._lease = self._client.renew(self.name, **how)
            self._since = began
            return True
        except SemelError as e:
            self._judge(e)
            return False
