-- Records of operations that are to be archived, kept before they are purged. One
-- identity may come again after its window, so a revision is part of the key.
CREATE TABLE idempotency_archive (
    id               bytea NOT NULL,
    revision         bytea NOT NULL,
    record           bytea NOT NULL,
    idempotency_key  text NOT NULL,
    operation_type   text NOT NULL,
    request_payload  text,
    response_payload bytea,
    status           text NOT NULL,
    created_at       timestamptz,
    updated_at       timestamptz,
    expires_at       timestamptz,
    user_id          text NOT NULL,
    session_id       text NOT NULL,
    archived_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id, revision)
);

CREATE INDEX idempotency_archive_key ON idempotency_archive (idempotency_key);
CREATE INDEX idempotency_archive_user_session ON idempotency_archive (user_id, session_id);
