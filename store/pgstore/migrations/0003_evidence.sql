-- The evidence log, in the order in which entries were written: the statement that
-- writes a record writes them too. An entry is never changed, but for its opening,
-- which can be erased.
CREATE SEQUENCE semel_evidence_seq;

CREATE TABLE semel_evidence (
    -- Whoever takes a number of the sequence has a transaction number by then: how
    -- entries that are missing are told from those that will never come.
    seq     bigint PRIMARY KEY DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('semel_evidence_seq') END,
    subject bytea,            -- what it is found by; null: by nothing
    leaf    bytea NOT NULL,
    opening bytea             -- null: there is none, or it was erased
);

ALTER SEQUENCE semel_evidence_seq OWNED BY semel_evidence.seq;

-- The numbers of entries, without gaps, from 0. Readers give them. They are never
-- changed, and no entry gets a second one.
CREATE TABLE semel_evidence_number (
    n       bigint PRIMARY KEY,
    seq     bigint NOT NULL UNIQUE,
    subject bytea
);

CREATE INDEX semel_evidence_number_subject ON semel_evidence_number (subject, n) WHERE subject IS NOT NULL;

-- How far entries have got numbers. One row.
CREATE TABLE semel_evidence_state (
    numbered     bigint NOT NULL,          -- how many have a number
    seen         bigint NOT NULL,          -- up to here each has one, or is missing
    missing      int8multirange NOT NULL,  -- of those: was not there when it was last looked
    missing_long int8multirange NOT NULL,  -- the same, and was found missing before the mark
    mark         xid8 NOT NULL             -- a transaction number
);

INSERT INTO semel_evidence_state VALUES (0, 0, '{}', '{}', '0');

-- Full tiles of the Merkle tree over the leaves.
CREATE TABLE semel_evidence_tile (
    name text PRIMARY KEY,
    tile bytea NOT NULL
);
