-- The schema that Forrst's specification recommends for its idempotency extension, as a view: a
-- row for each call over Forrst. The scope of such a call, which follows the sign U+241F in
-- principal, is its function and the version that the request named, which may be none.
CREATE VIEW idempotency_cache AS
    SELECT encode(id, 'hex') AS key_hash,
        substring(principal FROM E'\u241F(.*)@[^@]*$') AS function,
        substring(principal FROM E'\u241F.*@([^@]*)$') AS version,
        (SELECT substr(a, length('arguments_hash=') + 1) FROM unnest(tsvector_to_array(attributes)) AS a
            WHERE starts_with(a, 'arguments_hash=')) AS arguments_hash,
        semel_json(result) AS result, state AS status, created_at, expires_at
    FROM semel_records
    WHERE attributes @@ '''arguments_hash='':*'::tsquery AND principal ~ E'\u241F.*@[^@]*$' AND operation NOT LIKE 'semel.%';
