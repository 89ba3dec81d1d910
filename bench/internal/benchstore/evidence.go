package benchstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/store"
)

// EvidenceReport is the size of the evidence log.
type EvidenceReport struct {
	Level semel.EvidenceLevel `json:"level"`
	// Entries is how many entries the last checkpoint covers.
	Entries uint64 `json:"entries"`
	// LeafBytes and OpeningBytes are the mean sizes of the first entries.
	LeafBytes    float64 `json:"leaf_bytes"`
	OpeningBytes float64 `json:"opening_bytes"`
}

// evidenceLevel is the measured operation's.
const evidenceLevel = semel.EvidenceDecisions

// evidenceLog is a log beside a load. It is integrated once per second.
type evidenceLog struct {
	store store.EvidenceLog
	log   *evidence.Log
	fault atomic.Pointer[error] // from the integration
}

func newEvidenceLog(store semel.Store) (*evidenceLog, error) {
	es := store.Extras().Evidence
	if es == nil {
		return nil, errors.New("the store has no evidence log")
	}
	keys, err := evidence.GenerateKeys("semel.example/bench")
	if err != nil {
		return nil, err
	}
	l := &evidenceLog{store: es}
	l.log, err = evidence.New(store, keys, &evidence.Options{OnError: func(err error) { l.fault.CompareAndSwap(nil, &err) }})
	return l, err
}

// turner is a load during which the log is integrated. Its turn ends once the log is, so
// that nobody else pays for that.
func (l *evidenceLog) turner(load turner) turner {
	return func(ctx context.Context, t *tally, d time.Duration) float64 {
		beside, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = l.log.Run(beside) // it only returns the end of its context
		}()
		before := t.elapsed
		rate := load(ctx, t, d)
		elapsed := t.elapsed - before
		start := time.Now()
		stop()
		<-ended
		rest := time.Since(start)
		t.elapsed += rest
		if err := l.fault.Load(); err != nil && ctx.Err() == nil {
			t.errors++
			t.first = *err
		}
		return rate * elapsed.Seconds() / (elapsed + rest).Seconds()
	}
}

// report measures the log.
func (l *evidenceLog) report(ctx context.Context) (*EvidenceReport, error) {
	r := &EvidenceReport{Level: evidenceLevel}
	reader, err := l.log.Reader(ctx)
	if err != nil {
		return nil, err
	}
	_, at := reader.Checkpoint()
	r.Entries = at.Size
	list, err := l.store.ReadEvidence(ctx, 0, 1000)
	for i := range list {
		r.LeafBytes += float64(len(list[i].Leaf)) / float64(len(list))
		r.OpeningBytes += float64(len(list[i].Opening)) / float64(len(list))
	}
	return r, err
}

// withEvidence measures new calls with evidence and, to compare, the same kind of store
// without it.
func (b *bench) withEvidence(ctx context.Context) (err error) {
	store, err := b.place.open(ctx, "ours")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if b.report.Durability, err = durability(ctx, store); err != nil {
		return err
	}
	l, err := newEvidenceLog(store)
	if err != nil {
		return err
	}
	t, err := targetOf(store, b.opts.ResultBytes, evidenceLevel, l.log)
	if err != nil {
		return err
	}
	load := l.turner(b.local(t.execute))
	if b.opts.Compare {
		err = b.compareWithout(ctx, load)
	} else {
		b.progress("%s with evidence: %d callers for %v", b.opts.Load, b.opts.Callers, b.opts.Duration)
		var all tally
		load(ctx, &all, b.opts.Duration)
		m := all.measure()
		b.report.Ours = &m
		err = errors.Join(ctx.Err(), m.fault(string(b.opts.Load)))
	}
	if err != nil {
		return err
	}
	b.report.Evidence, err = l.report(ctx)
	return errors.Join(err, l.log.Close(ctx))
}

// compareWithout makes a load with evidence and the same load without it take turns.
func (b *bench) compareWithout(ctx context.Context, with turner) (err error) {
	t, store, err := b.open(ctx, "without")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	b.report.ComparedWith = "without evidence"
	ours, theirs, rounds := b.opts.alternate(ctx, "with and without evidence", with, b.local(t.execute))
	if err := b.report.reportRounds(ctx, &ours, &theirs, rounds); err != nil {
		return fmt.Errorf("with and without evidence: %w", err)
	}
	return nil
}
