-- What is in flight or held is found without looking through what has ended: for consoles,
-- and for who counts it.
CREATE INDEX semel_records_processing ON semel_records (since, id) WHERE state = 'processing';
