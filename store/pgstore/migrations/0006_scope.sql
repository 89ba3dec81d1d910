-- The view of the map with the members of a record's identity under their own names, and the
-- archive as the same view. In the tables a scope follows its principal after the sign U+241F.
-- A refusal that is kept apart for its caller has two of these signs, and no scope. The record
-- in which an inbox of ActivityPub keeps the first content under the id of an activity, for all
-- inboxes, isn't a call: each inbox has a record of its own, and the view only that.
CREATE OR REPLACE VIEW idempotency_log AS
    SELECT encode(id, 'hex') AS id, key AS idempotency_key, operation AS operation_type, semel_json(payload) AS request_payload,
        semel_json(result) AS response_payload, state AS status, created_at, updated_at, expires_at, user_id, session_id,
        tenant, split_part(principal, chr(9247), 1) AS principal,
        CASE split_part(principal, chr(9247), 3) WHEN '' THEN nullif(split_part(principal, chr(9247), 2), '') END AS scope
    FROM semel_records
    WHERE operation NOT LIKE 'semel.%' AND principal !~ '^activitypub␟activity( |$)';

CREATE VIEW idempotency_log_archive AS
    SELECT encode(id, 'hex') AS id, key AS idempotency_key, operation AS operation_type, semel_json(payload) AS request_payload,
        semel_json(result) AS response_payload, state AS status, created_at, updated_at, expires_at, user_id, session_id,
        tenant, split_part(principal, chr(9247), 1) AS principal,
        CASE split_part(principal, chr(9247), 3) WHEN '' THEN nullif(split_part(principal, chr(9247), 2), '') END AS scope, archived_at
    FROM idempotency_archive
    WHERE principal !~ '^activitypub␟activity( |$)';
