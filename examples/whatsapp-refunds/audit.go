package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/store/pebblestore"
)

// audit is the result of verifying the evidence with only the export, the public key and
// the checkpoints that were kept elsewhere.
type audit struct {
	Entries    uint64 `json:"entries"`
	FirstSeen  int    `json:"first_seen"`
	Executed   int    `json:"executed"`
	Repeated   int    `json:"executed_twice"`
	Confirmed  int    `json:"confirmed"`
	Replayed   int    `json:"duplicate_replayed"`
	Duplicates int    `json:"duplicate_messages"`
	Conflicts  int    `json:"conflict_rejected"`
	// Intact: the export verifies. Found: the entry that was changed was named.
	Intact  bool   `json:"verified"`
	Changed uint64 `json:"changed_entry"`
	Found   bool   `json:"changed_entry_found"`
	Finding string `json:"finding"`
}

// export writes the log of a store, which must not be open.
func export(ctx context.Context, s *settings, file string) (err error) {
	store, err := pebblestore.Open(s.Store, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	log, err := openLog(store, s.Keys, s.Checkpoints)
	if err != nil {
		return err
	}
	reader, err := log.Reader(ctx)
	if err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(reader.Export(ctx, out, nil), out.Close(), log.Close(ctx))
}

// verify audits an export.
func verify(file, publicKey, checkpoints string) (*audit, error) {
	text, err := os.ReadFile(publicKey)
	if err != nil {
		return nil, err
	}
	trust, err := evidence.ParseTrust(text)
	if err != nil {
		return nil, err
	}
	kept, err := os.ReadFile(filepath.Join(checkpoints, "latest"))
	if err != nil {
		return nil, err
	}
	opts := &evidence.VerifyOptions{Kept: evidence.SplitCheckpoints(kept)}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	report, err := evidence.Verify(bytes.NewReader(data), trust, opts)
	if err != nil {
		return nil, err
	}
	a := &audit{Entries: report.Entries, Intact: report.Finding == nil && report.Kept > 0}
	if report.Finding != nil {
		a.Finding = report.Finding.String()
		return a, nil
	}
	if err := a.count(data); err != nil {
		return nil, err
	}
	a.Changed = rand.Uint64N(report.Entries)
	if err := flip(data, a.Changed); err != nil {
		return nil, err
	}
	report, err = evidence.Verify(bytes.NewReader(data), trust, opts)
	if f := report.Finding; err == nil && f != nil {
		a.Finding, a.Found = f.String(), f.First == a.Changed && f.Last == a.Changed
	}
	return a, err
}

// entry is the line of an entry in an export.
type entry struct {
	N       *uint64           `json:"n"`
	Leaf    json.RawMessage   `json:"leaf"`
	Opening *evidence.Opening `json:"opening"`
	leaf    evidence.Artifact // parsed
}

// entries calls each for every entry of an export, with its line.
func entries(data []byte, each func(e *entry, line []byte) error) error {
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		e := &entry{}
		if err := json.Unmarshal(lines.Bytes(), e); err != nil {
			return err
		}
		if e.N == nil {
			continue // the head, a checkpoint or the end
		}
		leaf, err := evidence.ParseArtifact(e.Leaf)
		if err != nil {
			return err
		}
		e.leaf = leaf
		if err := each(e, lines.Bytes()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// count counts what happened, in a verified export.
func (a *audit) count(data []byte) error {
	executed := map[string]int{}
	err := entries(data, func(e *entry, _ []byte) error {
		if e.Opening == nil {
			return fmt.Errorf("entry %d has no opening", *e.N)
		}
		p := &e.leaf.Payload
		refund := e.Opening.Operation == "order.refund"
		switch {
		case p.Decision == evidence.DecisionConflict:
			a.Conflicts++
		case p.Decision == evidence.DecisionReplayed && refund:
			a.Replayed++
		case p.Decision == evidence.DecisionReplayed:
			a.Duplicates++
		case p.Decision == evidence.DecisionFirstSeen && refund:
			a.FirstSeen++
		case e.leaf.Type == evidence.TypeConfirmationConsumed && refund:
			a.Confirmed++
		case e.leaf.Type == evidence.TypeExecuted && refund:
			a.Executed++
			if executed[e.Opening.IdempotencyKey]++; executed[e.Opening.IdempotencyKey] == 2 {
				a.Repeated++
			}
		}
		return nil
	})
	return err
}

// flip changes one bit of one byte of one entry.
func flip(data []byte, n uint64) error {
	at := -1
	err := entries(data, func(e *entry, line []byte) error {
		if *e.N == n {
			start := bytes.Index(data, line)
			at = start + bytes.Index(line, e.Leaf) + rand.IntN(len(e.Leaf))
		}
		return nil
	})
	if err != nil || at < 0 {
		return errors.Join(err, fmt.Errorf("entry %d is not in the export", n))
	}
	data[at] ^= 1
	return nil
}
