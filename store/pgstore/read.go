package pgstore

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/semelhq/semel"
)

// Due is [semel.DueStore.Due]: the records that have been due for longest.
func (s *Store) Due(ctx context.Context, q semel.DueQuery) (semel.DuePage, error) {
	recs, err := s.dueRecords(ctx, q.Until, q.Limit)
	return semel.DuePage{Records: recs}, err
}

func (s *Store) dueRecords(ctx context.Context, until semel.Instant, limit int) ([]semel.Record, error) {
	if limit <= 0 {
		return nil, s.usable(ctx)
	}
	st := newStatement(s.sql.due, int8Value(int64(until)), int8Value(int64(limit))).prepare()
	recs, err := s.records(ctx, st)
	if err != nil {
		return nil, fmt.Errorf("pgstore: due: %w", err)
	}
	return recs, nil
}

// records reads the rows of a statement.
func (s *Store) records(ctx context.Context, st *statement) (recs []semel.Record, err error) {
	err = s.query(ctx, st, func(row [][]byte) error {
		rec, err := decodeRecord(row[0], row[1], row[2], row[3])
		if err == nil {
			recs = append(recs, rec)
		}
		return err
	})
	return recs, err
}

// int8Value is a single parameter.
func int8Value(n int64) column {
	return column{oid: pgtype.Int8OID, buf: binary.BigEndian.AppendUint64(nil, uint64(n))}
}

func textValue(s string) column { return column{oid: pgtype.TextOID, buf: []byte(s)} }

func byteaValue(b []byte) column { return column{oid: pgtype.ByteaOID, buf: b} }

func timeValue(i semel.Instant) column {
	return column{oid: pgtype.TimestamptzOID, buf: binary.BigEndian.AppendUint64(nil, uint64(microseconds(i)))}
}
