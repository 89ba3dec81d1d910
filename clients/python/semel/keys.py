"""Keys with a life: kept before the first try, and ended by a settled outcome."""

import hashlib
import os
import tempfile
import uuid

from .errors import SemelError


class Files:
    """Keeps keys in a directory, a file for each. Several processes may share it."""

    def __init__(self, directory: str):
        self.directory = directory

    def get(self, name: str) -> str | None:
        """Returns the key that is kept under a name."""
        try:
            with open(self._path(name), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def add(self, name: str, key: str) -> str:
        """Keeps the key unless there is one, and returns the one that is kept."""
        os.makedirs(self.directory, exist_ok=True)
        # A crash before the link leaves a file that nobody reads; after it, the key.
        handle, fresh = tempfile.mkstemp(dir=self.directory, prefix="new-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(key)
                file.flush()
                os.fsync(file.fileno())
            os.link(fresh, self._path(name))
        except FileExistsError:
            pass
        finally:
            os.unlink(fresh)
        self._sync()
        kept = self.get(name)
        if kept is None:
            raise RuntimeError(f"the key of {name} was removed while it was made")
        return kept

    def remove(self, name: str) -> None:
        """Forgets a key."""
        try:
            os.unlink(self._path(name))
        except FileNotFoundError:
            pass
        self._sync()

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, hashlib.sha256(name.encode()).hexdigest())

    def _sync(self) -> None:
        if os.name == "nt":  # directories can't be synced there
            return
        directory = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


class Keys:
    """Finds the key of a call by your name for it, such as an order number.

    A program that dies between sending a call and recording its outcome uses the same key when
    it is back. `store` has get, add and remove, such as :class:`Files`.
    """

    def __init__(self, store: Files):
        self.store = store

    def named(self, name: str) -> "Key":
        """The key of the call that is under way under this name."""
        return Key(self.store, name)


class Key:
    """The key of one call.

    All tries of the call share it, and a settled outcome ends it. Call `done` once you have
    recorded that outcome; then the same name begins another call. Using an ended key is an
    error, because a second call that is meant would get the first one's answer.
    """

    def __init__(self, store: Files, name: str):
        self.store = store
        self.name = name
        self._settled = False

    def use(self) -> str:
        """Returns the key itself, kept. Client.once calls it."""
        if self._settled:
            raise SemelError("key_settled", f"the call {self.name} has its outcome: record that, call done(), and take another key for another call", action="new_key")
        return self.store.get(self.name) or self.store.add(self.name, str(uuid.uuid4()))

    def settled(self) -> None:
        """Says that the call has an outcome that stays. Client.once calls it."""
        self._settled = True

    def done(self) -> None:
        """Forgets the key, once you have recorded the outcome."""
        self._settled = True
        self.store.remove(self.name)
