"""What a call without a result raises, and what a handler raises to end one."""

from typing import Any, Literal

Action = Literal["wait", "verify", "fix_request", "new_key", "stop"]
"""What a program does next.

wait: send the same again, after retry_after. verify: find out what happened first. fix_request:
correct the request. new_key: what differs is another call. stop: nothing helps.
"""

Mark = Literal["rejected", "failed", "aborted", "unknown"]

# The actions of codes that the client itself gives; problems have their own.
_ACTIONS: dict[str, Action] = {
    "unknown": "wait", "store_unavailable": "wait", "aborted": "wait", "rejected": "fix_request",
    "failed": "verify", "result_not_kept": "verify", "key_settled": "new_key",
}


class SemelError(Exception):
    """A call without a result. `code` is stable, the message is for people.

    Code `unknown` means that the work may have been done: don't do it again under another key.
    `retry_after` is in seconds, `record` names the record in the API, `reason` is the handler's
    own word, `challenge` confirms the call, and `stranger` says that something else than the
    service has answered.
    """

    def __init__(self, code: str, message: str, *, status: int | None = None, action: Action | None = None, retry_after: float = 0,
                 record: str = "", reason: str = "", challenge: Any = None, stranger: bool = False):
        super().__init__(message)
        self.code = code
        self.status = status
        self.action: Action = action or _ACTIONS.get(code, "stop")
        self.retry_after = retry_after
        self.record = record
        self.reason = reason
        self.challenge = challenge
        self.stranger = stranger


class Ended(Exception):
    """What a handler raises to say how the attempt ends.

    An error without a mark ends it as unknown if an effect has no result, as failed if an effect
    was confirmed or the operation moves money, and otherwise as aborted: nothing was done.
    """

    def __init__(self, mark: Mark, message: str, code: str = ""):
        super().__init__(message)
        self.mark = mark
        self.code = code


def rejected(code: str, message: str) -> Ended:
    """The work was refused for good: every retry gets this error."""
    return Ended("rejected", message, code)


def failed(message: str) -> Ended:
    """The work failed; the operation's on_failure says whether a retry runs it again."""
    return Ended("failed", message)


def nothing_done(message: str) -> Ended:
    """Nothing was done, for certain: the next delivery runs the work."""
    return Ended("aborted", message)


def unknown(message: str) -> Ended:
    """Nobody knows whether the work was done: the call is held until somebody settles it."""
    return Ended("unknown", message)
