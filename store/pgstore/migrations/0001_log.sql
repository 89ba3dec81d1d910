-- The records. "record" is the whole of one but for its result's bytes, which are
-- in response_payload, and is what the program reads; the other columns are copies
-- of its members, for the indexes and for people.
CREATE TABLE idempotency_log (
    id               bytea PRIMARY KEY,   -- digest of the identity
    revision         bytea NOT NULL,      -- names the write that made this version
    record           bytea NOT NULL,
    next_at          bigint,              -- when somebody must look at it: ns since 1970
    since            bigint NOT NULL,     -- when the identity was first stored: ns since 1970
    held             boolean NOT NULL,
    idempotency_key  text NOT NULL,
    operation_type   text NOT NULL,
    request_payload  text,                -- fingerprint of the payload, which is not kept
    response_payload bytea,
    status           text NOT NULL,
    created_at       timestamptz,
    updated_at       timestamptz,
    expires_at       timestamptz,
    user_id          text NOT NULL,       -- principal of the identity
    session_id       text NOT NULL        -- tenant
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.2);

CREATE INDEX idempotency_log_key ON idempotency_log (idempotency_key);
CREATE INDEX idempotency_log_user_session ON idempotency_log (user_id, session_id);
CREATE INDEX idempotency_log_expires_at ON idempotency_log (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX idempotency_log_next_at ON idempotency_log (next_at, id) WHERE next_at IS NOT NULL;
CREATE INDEX idempotency_log_since ON idempotency_log (since, id);
