"""What a call without a result raises, and what a handler raises to end one."""

from typing import Any, Literal

Action = Literal["wait", "verify", "fix_request", "new_key", "stop"]
Mark = Literal["rejected", "failed", "aborted", "unknown"]

_ACTIONS = {"unknown": "verify", "store_unavailable": "wait", "aborted": "wait"}


class SemelError(Exception):
    """A call without a result. `code` is stable, the message is for people.

    Code `unknown` means that the work may have been done: don't do it again under another key.
    `action` says what a program does next, and `retry_after` after how many seconds.
    """

    def __init__(self, code: str, message: str, *, status: int | None = None, action: Action | None = None,
                 retry_after: float = 0, record: str = "", reason: str = "", challenge: Any = None):
        super().__init__(message)
        self.code = code
        self.status = status
        self.action: Action = action or _ACTIONS.get(code, "stop")
        self.retry_after = retry_after
        self.record = record
        self.reason = reason
        self.challenge = challenge


class Ended(Exception):
    """What a handler raises to say how the attempt ends.

    An error without a mark ends it as failed if an effect was confirmed or the operation moves
    money, as unknown if an effect has no result, and otherwise as aborted: nothing was done.
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
