-- Columns under the names that records have everywhere, and the table of the idempotency map
-- as a view of them.
ALTER TABLE idempotency_log RENAME TO semel_records;
ALTER TABLE semel_records RENAME CONSTRAINT idempotency_log_pkey TO semel_records_pkey;
ALTER INDEX idempotency_log_expires_at RENAME TO semel_records_expires_at;
ALTER INDEX idempotency_log_next_at RENAME TO semel_records_next_at;
ALTER INDEX idempotency_log_since RENAME TO semel_records_since;
ALTER TABLE semel_records RENAME COLUMN idempotency_key TO key;
ALTER TABLE semel_records RENAME COLUMN operation_type TO operation;
ALTER TABLE semel_records RENAME COLUMN request_payload TO fingerprint;
ALTER TABLE semel_records RENAME COLUMN response_payload TO result;
ALTER TABLE semel_records RENAME COLUMN status TO state;
ALTER TABLE semel_records RENAME COLUMN user_id TO principal;
ALTER TABLE semel_records RENAME COLUMN session_id TO tenant;
ALTER TABLE semel_records
    ADD COLUMN payload    bytea,    -- the request, where it is kept
    ADD COLUMN attributes tsvector, -- each as NAME=VALUE, for searches; null: none
    ADD COLUMN user_id    text,     -- the attributes of these names
    ADD COLUMN session_id text;

-- The database refuses a second record of one identity by itself, even under another id.
-- The key comes first, so this is also the index of searches for a key.
DROP INDEX idempotency_log_key, idempotency_log_user_session;
CREATE UNIQUE INDEX semel_records_identity ON semel_records (key, operation, principal, tenant);
CREATE INDEX semel_records_user_session ON semel_records (user_id, session_id) WHERE user_id IS NOT NULL OR session_id IS NOT NULL;
CREATE INDEX semel_records_attributes ON semel_records USING gin (attributes) WHERE attributes IS NOT NULL;

ALTER TABLE idempotency_archive RENAME COLUMN idempotency_key TO key;
ALTER TABLE idempotency_archive RENAME COLUMN operation_type TO operation;
ALTER TABLE idempotency_archive RENAME COLUMN request_payload TO fingerprint;
ALTER TABLE idempotency_archive RENAME COLUMN response_payload TO result;
ALTER TABLE idempotency_archive RENAME COLUMN status TO state;
ALTER TABLE idempotency_archive RENAME COLUMN user_id TO principal;
ALTER TABLE idempotency_archive RENAME COLUMN session_id TO tenant;
ALTER TABLE idempotency_archive
    ADD COLUMN payload    bytea,
    ADD COLUMN user_id    text,
    ADD COLUMN session_id text;
DROP INDEX idempotency_archive_user_session;
CREATE INDEX idempotency_archive_user_session ON idempotency_archive (user_id, session_id) WHERE user_id IS NOT NULL OR session_id IS NOT NULL;

-- A request's payload, or the body of a kept result, as JSON; null if it isn't JSON. An HTTP answer begins with a byte 1
-- and its status; then each header has a byte that isn't 255, its name if that is 0, and its
-- value. Texts have their length before them, seven bits in a byte.
CREATE FUNCTION semel_json(result bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    place int := 1;
    octet int;
    size  int;
    shift int;
BEGIN
    IF length(result) > 0 AND get_byte(result, 0) = 1 THEN
        WHILE get_byte(result, place) > 127 LOOP
            place := place + 1;
        END LOOP;
        place := place + 1;
        WHILE get_byte(result, place) < 255 LOOP
            FOR texts IN 1 .. CASE get_byte(result, place) WHEN 0 THEN 2 ELSE 1 END LOOP
                size := 0;
                shift := 0;
                place := place + CASE texts WHEN 1 THEN 1 ELSE 0 END;
                LOOP
                    octet := get_byte(result, place);
                    place := place + 1;
                    size := size + ((octet & 127) << shift);
                    shift := shift + 7;
                    EXIT WHEN octet < 128;
                END LOOP;
                place := place + size;
            END LOOP;
        END LOOP;
        result := substr(result, place + 2);
    END IF;
    RETURN convert_from(result, 'UTF8')::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

-- The table of the map.
CREATE VIEW idempotency_log AS
    SELECT encode(id, 'hex') AS id, key AS idempotency_key, operation AS operation_type, semel_json(payload) AS request_payload,
        semel_json(result) AS response_payload, state AS status, created_at, updated_at, expires_at, user_id, session_id
    FROM semel_records
    WHERE operation NOT LIKE 'semel.%';
