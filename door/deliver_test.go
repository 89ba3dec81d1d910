package door_test

import (
	"context"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/store/memstore"
)

// TestDeliver: whoever observes the engine is told of each delivery, whatever becomes of it.
func TestDeliver(t *testing.T) {
	var told []semel.Delivered
	e, err := semel.New(memstore.New(), &semel.Options{
		Operations: []semel.Operation{{Name: "op"}},
		Events:     &semel.Events{Answered: func(ev semel.Delivered) { told = append(told, ev) }, Unswept: func(semel.Unswept) {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := door.NewRunner(e)
	ended := func(d semel.Ending) handler { return func(door.Run) semel.Ending { return d } }
	deliver := func(key string, refused error, h handler) (reply door.Reply) {
		defer func() {
			if v := recover(); v != nil && v != "boom" {
				t.Errorf("panicked with %v", v)
			}
		}()
		return r.Deliver(t.Context(), door.Delivery{
			Name: "test", Work: door.Work{Handler: h},
			Call: func(context.Context) (semel.Call, error) {
				return semel.Call{Principal: "p", Operation: "op", Key: key, Door: "test"}, refused
			},
			Answer: func(_ context.Context, r *door.Reply) { r.Event.Status = 299 },
		})
	}
	done := ended(semel.Ending{Disposition: semel.DispositionCompleted, Result: semel.Result{Data: []byte("done")}})
	for i, x := range []struct {
		key      string
		refused  error
		handler  handler
		decision semel.Decision
		code     semel.Code
		result   string
	}{
		{"k", nil, done, semel.Execute, "", ""},
		{"k", nil, done, semel.Replay, "", "done"},
		{"l", &semel.Error{Code: door.CodeUnauthorized}, done, "", door.CodeUnauthorized, ""},
		{"m", nil, func(door.Run) semel.Ending { panic("boom") }, "", door.CodeInternal, ""},
		{"m", nil, done, semel.Held, semel.CodeHeld, ""},
	} {
		reply := deliver(x.key, x.refused, x.handler)
		if len(told) != i+1 {
			t.Fatalf("%d deliveries, told of %d", i+1, len(told))
		}
		ev := told[i]
		if reply.Decision != x.decision || string(reply.Result.Data) != x.result || ev.Decision != x.decision || ev.Code != x.code || ev.Door != "test" {
			t.Errorf("%d: the reply is %q with %q, %v; told %q and %q at %q", i, reply.Decision, reply.Result.Data, reply.Err, ev.Decision, ev.Code, ev.Door)
		}
		if panicked := x.code == door.CodeInternal; panicked != (ev.Status == 0) || !panicked && (reply.Err == nil) != (x.code == "") {
			t.Errorf("%d: the status is %d, the error %v", i, ev.Status, reply.Err)
		}
	}
}

// TestTell: an event goes out whatever answer does, unless somebody else sends one.
func TestTell(t *testing.T) {
	var told []semel.Delivered
	e, err := semel.New(memstore.New(), &semel.Options{Events: &semel.Events{Answered: func(ev semel.Delivered) { told = append(told, ev) }, Unswept: func(semel.Unswept) {}}})
	if err != nil {
		t.Fatal(err)
	}
	tell := func(answer func(context.Context) (semel.Delivered, bool)) {
		defer func() { _ = recover() }()
		door.Tell(t.Context(), e.Internal(), "test", map[string][]string{"A": {"b"}}, answer)
	}
	tell(func(context.Context) (semel.Delivered, bool) { return semel.Delivered{Status: 299}, true })
	tell(func(context.Context) (semel.Delivered, bool) { return semel.Delivered{Status: 298}, false })
	tell(func(context.Context) (semel.Delivered, bool) { panic("boom") })
	if len(told) != 2 || told[0].Status != 299 || told[0].Door != "test" || told[0].Header["A"] == nil || told[1].Code != door.CodeInternal {
		t.Errorf("the events are %+v", told)
	}
}
