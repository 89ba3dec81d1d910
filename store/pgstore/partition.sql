-- Results apart from the records: a result is kept for the period in which it
-- expires, and all of a period goes at once.
CREATE TABLE idempotency_result (
    bucket           bigint NOT NULL,     -- number of the period in which it expires, counted from 1970
    id               bytea NOT NULL,      -- of the record
    revision         bytea NOT NULL,      -- of the record that it is the result of
    response_payload bytea NOT NULL
) PARTITION BY RANGE (bucket);

CREATE INDEX idempotency_result_id ON idempotency_result (id);

-- What comes before its partition was made.
CREATE TABLE idempotency_result_other PARTITION OF idempotency_result DEFAULT;

-- Where the result of a record is; null: in the record's row.
ALTER TABLE idempotency_log ADD COLUMN result_bucket bigint;

-- The length of a period. One row.
CREATE TABLE semel_partition (seconds bigint NOT NULL);
