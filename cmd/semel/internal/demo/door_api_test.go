package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/semelhq/semel"
	semelclient "github.com/semelhq/semel/client"
)

// apiDoor is the execution API: workers that ask Semel whether to charge, and charge at
// the payment service themselves.
type apiDoor struct {
	mu   sync.Mutex
	busy map[string]int // by key: executions from before their effect to their charge
}

const (
	apiOperation = "work.charge"
	apiEffect    = "charge"
)

func (*apiDoor) name() string { return "execution API" }
func (*apiDoor) slug() string { return "api" }

func (*apiDoor) configure(c *setup) error {
	c.add("operations", "- {name: %s, class: I3, shields: [S3], effects: [%s], lease: %s}", apiOperation, apiEffect, tourLease)
	return nil
}

func (*apiDoor) serve(p *provider, mux *http.ServeMux) {
	mux.HandleFunc("POST /work", func(w http.ResponseWriter, r *http.Request) {
		if o, ok := readOrder(w, r); ok {
			c, _ := p.book(o, r.Header.Get(keyHeader))
			writeJSON(w, http.StatusCreated, c)
		}
	})
}

// work charges at the payment service. Nobody stops a worker half-way.
func (*apiDoor) work(ctx context.Context, t *target, o order) (json.RawMessage, error) {
	a, err := t.client.post(context.WithoutCancel(ctx), t.provider+"/work", keyed(keyOf(o)), document(o))
	if err == nil && !a.ok() {
		err = fmt.Errorf("the payment service answered %d", a.status)
	}
	return json.RawMessage(strings.TrimSpace(a.body)), err
}

func (*apiDoor) runner(t *target) (*semelclient.Client, error) {
	return semelclient.New(t.guard, &semelclient.Options{Token: t.token, Transport: t.client.http.Transport, Tries: 1})
}

func (*apiDoor) call(o order) semel.Call {
	return semel.Call{Operation: apiOperation, Key: keyOf(o), Fingerprint: semel.FingerprintOf(semel.SchemeRaw, document(o))}
}

func (d *apiDoor) deliver(ctx context.Context, t *target, o order, _ int) (reply, error) {
	if t.unguarded {
		body, err := d.work(ctx, t, o)
		return reply{final: true, good: err == nil, same: string(body)}, err
	}
	c, err := d.runner(t)
	if err != nil {
		return reply{}, err
	}
	ans, err := c.Do(ctx, d.call(o), func(run context.Context, x semel.Execution) (semel.Result, error) {
		defer d.begin(o)()
		asked := false
		charge, err := semel.Effect(run, x, apiEffect, func(run context.Context, _ string) (json.RawMessage, error) {
			asked = true
			charge, err := d.work(run, t, o)
			if o.lingers() {
				select {
				case <-t.killed: // while it waits for this worker
				case <-ctx.Done(): // the storm is given up
				}
			}
			return charge, err
		})
		if err != nil && !asked {
			err = semel.Aborted(err) // Semel was gone before the work began
		}
		return semel.Result{Data: charge}, err
	})
	ended, _ := errors.AsType[*semel.Error](err)
	switch {
	case err == nil:
		return reply{final: true, good: true, same: string(ans.Record.Result.Data)}, nil
	case ans.Decision == semel.Conflict || ended != nil && (ended.Code == semel.CodeFailed || ended.Code == semel.CodeRejected):
		return reply{final: true, same: err.Error()}, nil
	}
	return reply{same: err.Error()}, nil // it may still be under way, or be begun again
}

// begin notes that an execution may charge until end is called.
func (d *apiDoor) begin(o order) (end func()) {
	add := func(n int) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.busy == nil {
			d.busy = map[string]int{}
		}
		d.busy[keyOf(o)] += n
	}
	add(1)
	return func() { add(-1) }
}

func (d *apiDoor) working(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.busy[key] > 0
}

// leave begins an order, and half of the time charges it.
func (d *apiDoor) leave(ctx context.Context, t *target, o order, copy int) error {
	c, err := d.runner(t)
	if err != nil {
		return err
	}
	b, err := c.Begin(ctx, d.call(o))
	if err != nil || b.Decision != semel.Execute || copy%2 == 0 {
		return err
	}
	defer d.begin(o)()
	if _, err := c.StartEffect(ctx, b.Execution, apiEffect); err != nil {
		return err
	}
	_, err = d.work(ctx, t, o)
	return err
}

func (*apiDoor) result(c Charge) semel.Result { return semel.Result{Data: document(c)} }
