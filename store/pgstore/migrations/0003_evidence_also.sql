-- What entries are found by besides their subject, one after the other in the queue and in a
-- table of their own in the log. A node of an earlier version writes none.
ALTER TABLE semel_evidence_new ADD COLUMN also bytea;

CREATE TABLE semel_evidence_also (
    subject bytea NOT NULL,
    n       bigint NOT NULL,
    PRIMARY KEY (subject, n)
);
