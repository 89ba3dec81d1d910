"""Runs the steps of scenarios, a line of JSON each from standard input, by the client for Python,
and writes what its user sees of each."""

import json
import sys
import threading
import time

from semel import Client, Files, Keys, SemelError, failed, nothing_done, rejected, unknown

url, prefix, directory = sys.argv[1:]
marks = {"rejected": lambda: rejected("declined", "it says no"), "failed": lambda: failed("it failed"), "nothing": lambda: nothing_done("nothing was sent"),
         "unknown": lambda: unknown("nobody knows"), "error": lambda: RuntimeError("something broke")}
keys = Keys(Files(directory))
state = {"client": None, "execution": None, "named": {}}


def run(step, seen, x):
    value = None
    for act in step.get("work", []):
        if "effect" in act:
            def call(key):
                seen["calls"] += 1
                if "throws" in act:
                    raise marks[act["throws"]]()
                return act.get("gives")
            value = x.effect(act["effect"], call)
        if "swallow" in act:
            def breaks(key):
                seen["calls"] += 1
                raise marks["error"]()
            try:
                x.effect(act["swallow"], breaks)
            except RuntimeError:
                pass
        same = {"key": step["key"], "operation": step["operation"], "payload": step["payload"]}
        if "inner" in act:
            seen.setdefault("inner", []).append(perform({**same, **act["inner"]}))
        if "beside" in act:
            found = []
            beside = threading.Thread(target=lambda: found.append(perform({**same, **act["beside"]})))
            beside.start()
            seen.setdefault("besides", []).append((beside, found))
        if "lost" in act:
            while not x.lost:
                time.sleep(0.01)
            seen["lost"] = True
        if "throws" in act and "effect" not in act:
            raise marks[act["throws"]]()
        if "returns" in act:
            value = act["returns"]
    return value


def perform(step):
    seen = {"runs": 0, "calls": 0}
    try:
        does[step.get("do", "once")](step, seen)
    except SemelError as e:
        seen.update(code=e.code, action=e.action, record=e.record)
        if e.reason:
            seen["reason"] = e.reason
        if e.challenge:
            seen["challenge"] = True
        if "tells" in step:
            seen["said"] = str(e)
    for thread, found in seen.pop("besides", []):
        thread.join()
        seen.setdefault("inner", []).extend(found)
    return seen


def show(seen, record):
    seen.update(status=record["status"], attempt=record["attempt"], record=record["id"])
    if "disposition" in record:
        seen["disposition"] = record["disposition"]
    if record["effects"]:
        seen["effects"] = sorted(f"{e['name']}:{e['state']}" for e in record["effects"])


def client(step, seen):
    def vault():
        raise OSError(step["vault"])
    state.update(client=Client(url, token=vault if "vault" in step else step["token"], tries=3, pause=0.02, timeout=2), named={})


def once(step, seen):
    name = prefix + step["key"]
    key = state["named"].setdefault(name, keys.named(name)) if step.get("named") else name

    def work(x):
        seen["runs"] += 1
        return run(step, seen, x)
    outcome = state["client"].once(step["operation"], key, work, wait=step.get("wait", 0), payload=step["payload"], **step.get("call", {}))
    seen.update(value=outcome.value, replayed=outcome.replayed)
    show(seen, outcome.record)


def done(step, seen):
    keys.named(prefix + step["key"]).done()
    state["named"] = {}


def begin(step, seen):
    begun = state["client"].begin(step["operation"], prefix + step["key"], payload=step["payload"])
    seen["decision"] = begun["decision"]
    state["execution"] = begun.get("execution", state["execution"])
    show(seen, begun["record"])


does = {
    "client": client, "once": once, "done": done, "begin": begin,
    "renew": lambda step, seen: seen.update(renewed=state["client"].renew(state["execution"]) > 0),
    "complete": lambda step, seen: show(seen, state["client"].complete(state["execution"], step.get("result"))),
    "abandon": lambda step, seen: show(seen, state["client"].abandon(state["execution"], "it gave up")),
    "record": lambda step, seen: show(seen, state["client"].record(step["record"])),
}

for line in sys.stdin:
    print(json.dumps(perform(json.loads(line))), flush=True)
