package enginetest

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Who observes the engine believes the comments in event.go: each field is set in each event,
// except where its comment says when it isn't, and no field is there for nothing.
func TestEventsSayWhatTheirCommentsPromise(t *testing.T) {
	var o observed
	t.Run("of the engine", func(t *testing.T) { driveEngine(t, &o) })
	t.Run("of dropped releases", func(t *testing.T) { driveReleases(t, &o) })
	t.Run("of doors", func(t *testing.T) { driveDoors(t, &o) })

	promised := promises(t)
	types := []reflect.Type{reflect.TypeFor[semel.Line](), reflect.TypeFor[semel.Presented]()}
	for f := range reflect.TypeFor[semel.Events]().Fields() {
		if e, ok := eventOf(f.Type); ok {
			types = append(types, e)
		}
	}
	for _, of := range types {
		events := o.events[of]
		if len(events) == 0 {
			t.Errorf("no %s was observed", of)
			continue
		}
		for i := range of.NumField() {
			name := of.Name() + "." + of.Field(i).Name
			always, known := promised[name]
			if !known {
				t.Errorf("%s is not in event.go", name)
			}
			set := 0
			for _, e := range events {
				if !e.Field(i).IsZero() {
					set++
				} else if always {
					t.Errorf("%s is not set in %+v", name, e)
				}
			}
			if set == 0 {
				t.Errorf("%s is set in none of %d events", name, len(events))
			}
		}
	}
}

// exception finds a comment that says when a field isn't set.
var exception = regexp.MustCompile(`(?i)\b(zero|empty|nil|false)\b`)

// promises says for each field in event.go whether each event has it.
func promises(t *testing.T) map[string]bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../../event.go", nil, parser.ParseComments)
	must(t, err)
	promised := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		for _, field := range spec.Type.(*ast.StructType).Fields.List {
			always := !exception.MatchString(field.Doc.Text() + field.Comment.Text())
			if embedded, ok := field.Type.(*ast.Ident); ok && field.Names == nil {
				promised[spec.Name.Name+"."+embedded.Name] = always
			}
			for _, name := range field.Names {
				promised[spec.Name.Name+"."+name.Name] = always
			}
		}
		return false
	})
	return promised
}

// eventOf is the type of the event that a function of Events gets.
func eventOf(f reflect.Type) (reflect.Type, bool) {
	last := f.In(f.NumIn() - 1)
	return last, last.Kind() == reflect.Struct
}

// observed has all events, by type.
type observed struct {
	mu     sync.Mutex
	events map[reflect.Type][]reflect.Value
}

func (o *observed) add(e reflect.Value) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.events == nil {
		o.events = map[reflect.Type][]reflect.Value{}
	}
	o.events[e.Type()] = append(o.events[e.Type()], e)
	switch x := e.Interface().(type) {
	case semel.Delivered:
		o.events[reflect.TypeFor[semel.Line]()] = append(o.events[reflect.TypeFor[semel.Line]()], reflect.ValueOf(x.Line))
	case semel.Decided:
		if p := x.Presented; p != nil {
			o.events[reflect.TypeFor[semel.Presented]()] = append(o.events[reflect.TypeFor[semel.Presented]()], reflect.ValueOf(*p))
		}
	}
}

// all are Events that keep what they get.
func (o *observed) all() *semel.Events {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	events := semel.Events{Trace: func(context.Context) string { return trace }}
	v := reflect.ValueOf(&events).Elem()
	for _, f := range v.Fields() {
		if _, ok := eventOf(f.Type()); ok {
			f.Set(reflect.MakeFunc(f.Type(), func(args []reflect.Value) []reflect.Value {
				o.add(args[len(args)-1])
				return args[:f.Type().NumOut()] // Arrived returns its context
			}))
		}
	}
	return &events
}

// driveEngine has an engine meet everything that it tells of, on a store that takes a while.
func driveEngine(t *testing.T, o *observed) {
	synctest.Test(t, func(t *testing.T) {
		st, down := newStalling(), errors.New("no connection")
		var broken atomic.Bool
		st.writeBy(func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
			<-time.After(time.Millisecond)
			if broken.Load() {
				return nil, false, down
			}
			return st.Store.Apply(ctx, w)
		})
		var asked atomic.Int64
		ops := undoing(func(context.Context, semel.Execution, semel.Record) (semel.Result, error) {
			<-time.After(time.Second)
			return semel.Result{}, semel.Aborted(down)
		}, semel.Operation{})
		ops[0].PerRecord, ops[0].KeepPayload, ops[0].MaxWait, ops[0].Window, ops[0].Lease = semel.Rate{PerSecond: 0.001, Burst: 1}, true, time.Minute, time.Hour, 30*time.Second
		ops[0].Reconcile = func(context.Context, semel.Record) (semel.Settlement, error) {
			<-time.After(time.Second)
			if asked.Add(1) == 1 {
				return semel.Settlement{}, down
			}
			return semel.Settlement{Outcome: semel.DispositionCompleted, Result: data("found"), Who: "the bank"}, nil
		}
		e := program(t, st, semel.Options{Events: o.all(), Quotas: semel.Quotas{Window: hour, PrincipalRecords: 100, PrincipalBytes: 1 << 20}}, ops...)
		through := func(key string) semel.Call { c := call(key); c.Door, c.Payload = "test", []byte("x"); return c }

		// A duplicate that waits, one that is throttled, and a conflict.
		a := begin(t, e, through("k"))
		waits := through("k")
		waits.Wait = time.Minute
		waited := make(chan struct{})
		go func() { defer close(waited); decides(t, e, waits, semel.Replay) }()
		pass(time.Second)
		must(t, a.Complete(t.Context(), data("done")))
		<-waited
		decides(t, e, through("k"), semel.Throttled)
		must(t, begin(t, e, through("c")).Complete(t.Context(), data("done")))
		other := through("c")
		other.Fingerprint = payload("other")
		decides(t, e, other, semel.Conflict)

		// Nothing has swept until now. One held call is reconciled, another settled, and a
		// compensation is resumed.
		pass(2 * time.Minute)
		must(t, begin(t, e, through("held")).Hold(t.Context(), "who knows"))
		must(t, begin(t, e, through("settled")).Hold(t.Context(), "who knows"))
		_, err := e.Settle(t.Context(), id("settled"), semel.Settlement{Outcome: semel.DispositionAborted, Who: "olga"}, "nothing at the bank")
		must(t, err)
		unfinished(t, e, "refunded")
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = e.Run(ctx, 0) }()
		pass(10 * time.Minute)

		// The store is away for longer than a lease.
		a = begin(t, e, through("lost"))
		broken.Store(true)
		<-a.Context().Done()
		pass(time.Minute)
		broken.Store(false)

		must(t, e.Purge(t.Context(), id("c"), semel.Removal{Who: "olga", Reason: "asked for", EraseEvidence: true}))
		pass(3 * time.Hour) // what is left expires
		stop()
		synctest.Wait()
	})
}

// driveReleases has more claims wait for their release than an engine keeps.
func driveReleases(t *testing.T, o *observed) {
	synctest.Test(t, func(t *testing.T) {
		st := newStalling()
		e := program(t, st, semel.Options{Events: o.all()}, semel.Operation{Name: "op"})
		st.writeBy(func(ctx context.Context, _ store.Write) (*semel.Record, bool, error) {
			<-ctx.Done()
			return nil, false, ctx.Err()
		})
		var callers sync.WaitGroup
		for i := range 4100 {
			callers.Go(func() {
				if _, err := e.Begin(t.Context(), call(strconv.Itoa(i))); err == nil {
					t.Error("a claim that nobody confirmed counts")
				}
			})
		}
		callers.Wait()
	})
}
