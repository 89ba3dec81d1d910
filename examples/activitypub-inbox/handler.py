"""A case tracker behind the service: it gets each activity that the service has accepted.

    python3 handler.py reports.db 8080

The service posts an activity again after a crash or a lost answer. So create_report lets a
unique column decide whether a report is new, and validate_report changes the state only if it
is still the expected one. Both log at INFO that something was done already.
"""

import json
import logging
import sqlite3
import sys
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

log = logging.getLogger("cases")

SCHEMA = "CREATE TABLE IF NOT EXISTS reports (id TEXT PRIMARY KEY, reporter TEXT, state TEXT)"


def create_report(db, report, actor):
    """Insert a report, unless it exists. 204: it is there."""
    new = db.execute("INSERT INTO reports VALUES (?, ?, 'received') ON CONFLICT DO NOTHING", (report, actor)).rowcount
    log.info("create_report %s: %s", report, "created" if new else "already exists")
    return 204


def validate_report(db, report, actor):
    """Make a received report valid. 503: it isn't here yet, so send this again. 422: too late."""
    if db.execute("UPDATE reports SET state = 'valid' WHERE id = ? AND state = 'received'", (report,)).rowcount:
        log.info("validate_report %s: state changed", report)
        return 204
    row = db.execute("SELECT state FROM reports WHERE id = ?", (report,)).fetchone()
    if row is None:
        return 503
    if row[0] != "valid":
        return 422
    log.info("validate_report %s: already valid", report)
    return 204


STEPS = {"Offer": create_report, "Accept": validate_report}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        activity = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        step = STEPS.get(self.headers["Semel-Activity-Type"])
        actor = urllib.parse.unquote(self.headers["Semel-Activity-Actor"])  # proved, unlike the body's
        status = 204
        if step:
            with sqlite3.connect(self.server.file, timeout=10) as db:  # commits before the answer
                status = step(db, activity["object"], actor)
            db.close()
        self.send_response(status)
        self.end_headers()

    def log_message(self, *args):
        pass


def main(file, port):
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    with sqlite3.connect(file) as db:
        db.execute(SCHEMA)
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
    server.file = file
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
