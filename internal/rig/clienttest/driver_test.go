package clienttest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/safehttp"
)

// act is one thing that a handler does.
type act struct {
	Effect  string          `json:"effect"`
	Gives   json.RawMessage `json:"gives"`
	Swallow string          `json:"swallow"`
	Inner   *step           `json:"inner"`
	Beside  *step           `json:"beside"`
	Lost    bool            `json:"lost"`
	Throws  string          `json:"throws"`
	Returns json.RawMessage `json:"returns"`
}

// step is what a driver does.
type step struct {
	Do        string          `json:"do"`
	Operation string          `json:"operation"`
	Key       string          `json:"key"`
	Payload   json.RawMessage `json:"payload"`
	Named     bool            `json:"named"`
	Wait      int             `json:"wait"`
	Token     string          `json:"token"`
	Record    string          `json:"record"`
	Result    json.RawMessage `json:"result"`
	Call      wire.Beginning  `json:"call"`
	Work      []act           `json:"work"`
}

// seen is what the user of a client sees of a step.
type seen map[string]any

// goDriver runs steps by the client for Go, as driver.mjs and driver.py do by theirs.
type goDriver struct {
	url, prefix string
	client      *client.Client
	execution   string
	keys        map[string]string // of calls with a life, by their names
}

func (d *goDriver) perform(ctx context.Context, s step) seen {
	saw := &doing{d: d, seen: seen{"runs": 0, "calls": 0}}
	if err := saw.do(ctx, s); err != nil {
		e, ok := errors.AsType[*semel.Error](err)
		if !ok {
			e = &semel.Error{Code: "not_an_error_of_semel", Message: err.Error()}
		}
		saw.seen["code"], saw.seen["action"] = e.Code, e.Action
	}
	saw.beside.Wait()
	return saw.seen
}

// doing is a step under way.
type doing struct {
	d      *goDriver
	seen   seen
	mu     sync.Mutex
	beside sync.WaitGroup
}

func (s *doing) do(ctx context.Context, what step) (err error) {
	d := s.d
	var rec *semel.Record
	switch what.Do {
	case "client":
		d.client, err = client.New(d.url, &client.Options{Token: what.Token, Tries: 3, MinPause: 20 * time.Millisecond, Timeout: 2 * time.Second})
		return err
	case "begin":
		var b client.Begun
		if b, err = d.client.Begin(ctx, what.call(d.prefix)); err != nil {
			return err
		}
		s.seen["decision"], rec, d.execution = b.Decision, b.Record, cmp.Or(b.Execution, d.execution)
	case "renew":
		var lease time.Duration
		if lease, err = d.client.Renew(ctx, d.execution); err == nil {
			s.seen["renewed"] = lease > 0
		}
	case "complete":
		rec, err = d.client.Complete(ctx, d.execution, semel.Result{Data: what.Result})
	case "done":
		delete(d.keys, d.prefix+what.Key)
	case "abandon":
		rec, err = d.client.Abandon(ctx, d.execution, "it gave up")
	default:
		return s.once(ctx, what)
	}
	if rec != nil && err == nil {
		s.show(rec)
	}
	return err
}

func (s *step) call(prefix string) semel.Call {
	fp, err := semel.FingerprintJSON(s.Payload)
	if err != nil {
		panic(err)
	}
	return semel.Call{
		Operation: s.Operation, Key: prefix + s.Key, Fingerprint: fp, Wait: time.Duration(s.Wait) * time.Second,
		FirstSent: s.Call.FirstSent, Sequence: s.Call.Sequence, Attributes: s.Call.Attributes,
	}
}

func (s *doing) once(ctx context.Context, what step) error {
	call := what.call(s.d.prefix)
	if what.Named {
		if s.d.keys[call.Key] == "" {
			s.d.keys[call.Key] = safehttp.NewKey()
		}
		call.Key = s.d.keys[call.Key]
	}
	ans, err := s.d.client.Do(ctx, call, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
		s.seen["runs"] = s.seen["runs"].(int) + 1
		v, err := s.work(ctx, x, what)
		return semel.Result{Data: v}, err
	})
	if ans.Record != nil {
		s.seen["record"] = ans.Record.ID.Encode()
	}
	if err != nil {
		if ans.Challenge != nil {
			s.seen["challenge"] = true
		}
		if e, _ := errors.AsType[*semel.Error](err); e != nil && ans.Record != nil && ans.Record.Failure != nil && ans.Record.Failure.Code != "" {
			s.seen["reason"] = ans.Record.Failure.Code
		}
		return err
	}
	s.seen["value"], s.seen["replayed"] = json.RawMessage(ans.Record.Result.Data), ans.Decision == semel.Replay
	s.show(ans.Record)
	return nil
}

func (s *doing) show(rec *semel.Record) {
	s.seen["status"], s.seen["attempt"], s.seen["record"] = rec.State.String(), rec.Attempt, rec.ID.Encode()
	if rec.Disposition != 0 {
		s.seen["disposition"] = rec.Disposition.String()
	}
	var effects []string
	for i := range rec.Effects {
		effects = append(effects, rec.Effects[i].Name+":"+string(rec.Effects[i].State))
	}
	if slices.Sort(effects); len(effects) > 0 {
		s.seen["effects"] = effects
	}
}

func (s *doing) work(ctx context.Context, x semel.Execution, what step) (json.RawMessage, error) {
	value := json.RawMessage("null")
	for i := range what.Work {
		a := &what.Work[i]
		switch {
		case a.Effect != "":
			v, err := semel.Effect(ctx, x, a.Effect, func(context.Context, string) (json.RawMessage, error) {
				s.seen["calls"] = s.seen["calls"].(int) + 1
				return a.Gives, thrown(a.Throws)
			})
			if value = v; err != nil {
				return nil, err
			}
		case a.Swallow != "":
			_, _ = semel.Effect(ctx, x, a.Swallow, func(context.Context, string) (any, error) {
				s.seen["calls"] = s.seen["calls"].(int) + 1
				return nil, thrown("error")
			})
		case a.Inner != nil:
			s.also(s.d.perform(ctx, a.Inner.within(&what)))
		case a.Beside != nil:
			s.beside.Go(func() { s.also(s.d.perform(context.WithoutCancel(ctx), a.Beside.within(&what))) })
		case a.Lost:
			<-ctx.Done()
			s.seen["lost"] = true
		case a.Throws != "":
			return nil, thrown(a.Throws)
		}
		if a.Returns != nil {
			value = a.Returns
		}
	}
	return value, nil
}

// within fills in what a step within another has of that.
func (s step) within(outer *step) step {
	s.Key, s.Operation = cmp.Or(s.Key, outer.Key), cmp.Or(s.Operation, outer.Operation)
	if s.Payload == nil {
		s.Payload = outer.Payload
	}
	return s
}

func (s *doing) also(inner seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, _ := s.seen["inner"].([]seen)
	s.seen["inner"] = append(list, inner)
}

func thrown(mark string) error {
	switch mark {
	case "":
		return nil
	case "rejected":
		return semel.Rejected("declined", errors.New("it says no"))
	case "failed":
		return semel.Failure(errors.New("it failed"))
	case "nothing":
		return semel.Aborted(errors.New("nothing was sent"))
	case "unknown":
		return semel.Unknown(errors.New("nobody knows"))
	}
	return errors.New("something broke")
}
