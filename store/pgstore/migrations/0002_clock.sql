-- What the stores in all processes have noted of their common clock, in one row.
CREATE TABLE semel_clock (
    one  boolean PRIMARY KEY DEFAULT true CHECK (one),
    note text NOT NULL
);

INSERT INTO semel_clock (note) VALUES ('');
