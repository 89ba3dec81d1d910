package pgstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/semelhq/semel"
)

// Due is [semel.DueStore.Due], in the order of NextAt to the nanosecond.
func (s *Store) Due(ctx context.Context, q semel.DueQuery) (semel.DuePage, error) {
	if err := s.usable(ctx); err != nil {
		return semel.DuePage{}, err
	}
	from := place{kind: inDue, at: math.MinInt64}
	if q.After != "" {
		var err error
		if from, err = decodePlace(q.After, inDue); err != nil {
			return semel.DuePage{}, err
		}
	}
	if q.Limit <= 0 {
		return semel.DuePage{}, nil
	}
	page, err := s.due(ctx, q, from)
	if err != nil {
		return semel.DuePage{}, fmt.Errorf("pgstore: due: %w", err)
	}
	return page, nil
}

// due reads a page. A row that can't be read has its place in it like the others, so
// the next page begins behind it.
func (s *Store) due(ctx context.Context, q semel.DueQuery, from place) (page semel.DuePage, err error) {
	n, last := 0, from
	err = s.query(ctx, s.sql.duePage(q.Until, from, q.Limit), func(row [][]byte) error {
		n, last = n+1, placeOf(inDue, row[4], row[0])
		rec, err := decodeRecord(row[0], row[1], row[2], row[3])
		if err != nil {
			page.Unreadable = append(page.Unreadable, err)
		} else {
			page.Records = append(page.Records, rec)
		}
		return nil
	})
	if n == q.Limit {
		page.Next = last.encode()
	}
	return page, err
}

func (s *statements) duePage(until semel.Instant, from place, limit int) *statement {
	return newStatement(s.due, int8Value(int64(until)), int8Value(from.at), byteaValue(from.id), int8Value(int64(limit))).prepare()
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
