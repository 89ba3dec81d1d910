package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// settle ends the faults and asks after every key until its answer is one that
// lasts. A key that stays in flight although nobody works on it is lost.
func (r *rig) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e, err := semel.New(r.store, &semel.Options{Operations: []semel.Operation{opShortHold, opShortRetry}})
	if err != nil {
		return err
	}
	defer e.Close(ctx)
	for group := range rigGroups {
		for k := range 2 * rigPairs {
			for _, op := range []*semel.Operation{&opShortHold, &opShortRetry} {
				if err := r.settleKey(ctx, e, op, fmt.Sprintf("%d-%d-%d", r.seed, group, k)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// settleKey asks after one key.
func (r *rig) settleKey(ctx context.Context, e *semel.Engine, op *semel.Operation, key string) error {
	const client = rigGroups * rigClients
	c, print := call(*op, key), "payload"
	for {
		rec, err := e.Lookup(ctx, semel.ID{Tenant: c.Tenant, Principal: c.Principal, Operation: c.Operation, Key: c.Key})
		if err == nil && rec.Fingerprint == payload("another payload") {
			print = "another payload"
		}
		c.Fingerprint = payload(print)
		a := r.begin(ctx, client, e, op, c, print)
		if a != nil {
			in := endInput{op: op, key: key, fence: a.Fence(), kind: semel.DispositionAborted, ending: "aborted"}
			r.end(client, in, func() error { return a.Abort(ctx, semel.Failure{}) })
			return nil
		}
		if err == nil && (rec.State.Terminal() || rec.Held != "") {
			return nil
		}
		if pass(ctx, 5*time.Millisecond) != nil {
			return fmt.Errorf("%s %s is in flight and stays so although nobody works on it", op.Name, key)
		}
	}
}

// close ends the engines and waits for writes that are late.
func (r *rig) close(ctx context.Context) error {
	var errs []error
	for i, e := range r.engines {
		errs = append(errs, e.Close(ctx))
		r.controls[i].Settle()
	}
	return errors.Join(errs...)
}

// check holds the history against the model and the single rules.
func (r *rig) check() error {
	r.rep.ops, r.rep.writes = len(r.rec.ops), r.written.count
	r.rep.faults = map[faultstore.Fault]int{}
	for _, c := range r.controls {
		for fault, n := range c.Fired() {
			r.rep.faults[fault] += n
		}
	}
	var errs []error
	for run, n := range r.runs {
		if n != 1 {
			errs = append(errs, fmt.Errorf("%s was executed %d times", run, n))
		}
	}
	policies := map[string]semel.Operation{opShortHold.Name: opShortHold, opShortRetry.Name: opShortRetry}
	errs = append(errs, r.written.check(func(name string) semel.Operation { return policies[name] }), replaysEqual(r.rec.ops), fencesRise(r.rec.ops))
	for _, part := range claimModel.Partition(r.rec.ops) {
		switch porcupine.CheckOperationsTimeout(claimModel, part, checkPatience) {
		case porcupine.Illegal:
			slices.SortFunc(part, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
			var lines []string
			for _, op := range part {
				lines = append(lines, describe(op))
			}
			errs = append(errs, fmt.Errorf("no order of these operations explains what they got:\n  %s", strings.Join(lines, "\n  ")))
		case porcupine.Unknown:
			errs = append(errs, fmt.Errorf("a history of %d operations could not be checked within %v", len(part), checkPatience))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("-storetest.seed=%d: %w", r.seed, err)
	}
	return nil
}

// replaysEqual reports two replays of one call that differ.
func replaysEqual(ops []porcupine.Operation) error {
	outcomes := map[string]string{}
	for _, op := range ops {
		in, begins := op.Input.(beginInput)
		if !begins {
			continue
		}
		if out := op.Output.(beginOutput); out.decision == semel.Replay && !out.unknown {
			name := in.op.Name + " " + in.key
			if first, ok := outcomes[name]; ok && first != out.outcome {
				return fmt.Errorf("%s was answered with %q and with %q", name, first, out.outcome)
			}
			outcomes[name] = out.outcome
		}
	}
	return nil
}

// fencesRise reports a holder whose fence is not above that of a holder who was
// there before.
func fencesRise(ops []porcupine.Operation) error {
	byKey := map[string][]porcupine.Operation{}
	for _, op := range ops {
		if in, begins := op.Input.(beginInput); begins && op.Output.(beginOutput).decision == semel.Execute {
			byKey[in.op.Name+" "+in.key] = append(byKey[in.op.Name+" "+in.key], op)
		}
	}
	for name, held := range byKey {
		for _, a := range held {
			for _, b := range held {
				if a.Return < b.Call && a.Output.(beginOutput).fence >= b.Output.(beginOutput).fence {
					return fmt.Errorf("%s: fence %d was followed by %d", name, a.Output.(beginOutput).fence, b.Output.(beginOutput).fence)
				}
			}
		}
	}
	return nil
}
