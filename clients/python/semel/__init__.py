"""Run a side effect once: the client of a Semel service."""

from .client import Client, Outcome
from .errors import Ended, SemelError, failed, nothing_done, rejected, unknown
from .execution import Execution
from .keys import Files, Key, Keys

__all__ = ["Client", "Ended", "Execution", "Files", "Key", "Keys", "Outcome", "SemelError", "failed", "nothing_done", "rejected", "unknown"]
