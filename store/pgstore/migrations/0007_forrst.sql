-- The schema that Forrst's specification recommends for its idempotency extension, as a view: a
-- row for each call over Forrst. The scope of such a call is its function and the version that
-- the request named, which may be none.
CREATE VIEW idempotency_cache AS
    SELECT encode(id, 'hex') AS key_hash,
        substring(split_part(principal, chr(9247), 2) FROM '^(.*)@[^@]*$') AS function,
        substring(split_part(principal, chr(9247), 2) FROM '^.*@([^@]*)$') AS version,
        (SELECT substr(a, length('arguments_hash=') + 1) FROM unnest(tsvector_to_array(attributes)) AS a
            WHERE starts_with(a, 'arguments_hash=')) AS arguments_hash,
        semel_json(result) AS result, state AS status, created_at, expires_at
    FROM semel_records
    WHERE attributes @@ '''arguments_hash='':*'::tsquery AND split_part(principal, chr(9247), 2) LIKE '%@%' AND operation NOT LIKE 'semel.%'
        AND split_part(principal, chr(9247), 3) = ''; -- a refusal that is kept apart has a third part
