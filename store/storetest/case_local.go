package storetest

import (
	"context"
	"testing"

	"github.com/semelhq/semel"
)

// local offers Hash, Load and Swap of a store as Get and Apply.
type local struct {
	semel.Store
	l semel.LocalStore
}

func (s local) Apply(ctx context.Context, w semel.Write) (semel.Record, bool, error) {
	if w.Deadline != 0 { // a write that takes no time has none
		return s.Store.Apply(ctx, w)
	}
	cur, applied := s.l.Swap(s.l.Hash(w.Record.ID), &w.Record, w.Expect, w.Evidence)
	if cur == nil {
		return semel.Record{}, applied, nil
	}
	return *cur, applied, nil
}

func (s local) Get(_ context.Context, id semel.ID) (semel.Record, error) {
	if rec := s.l.Load(s.l.Hash(id), id); rec != nil {
		return *rec, nil
	}
	return semel.Record{}, semel.ErrNotFound
}

// localCases are the cases of Apply and Get, by way of Swap and Load.
var localCases = func() (cases []testCase) {
	for _, c := range applyCases {
		run := c.run
		c.name, c.needs = "through LocalStore, "+c.name, canLocal
		c.why = "Swap is Apply; Load returns the record, or nil. " + c.why
		c.run = func(t *testing.T, env Env) {
			env.Store = local{env.Store, env.Store.(semel.LocalStore)}
			run(t, env)
		}
		cases = append(cases, c)
	}
	return cases
}()
