package upgrade

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce/datasync"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/conflicts"
	"github.com/semelhq/semel/internal/nodes"
	"github.com/semelhq/semel/internal/service/figures"
	"github.com/semelhq/semel/internal/tally"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/codec"
	"github.com/semelhq/semel/store/memstore"
)

var add = flag.Bool("add", false, "write recorded stores that are missing")

// kept are the forms of what this module keeps in records of its own: which operations they
// have, the newest number, and what a program of today reads from a recorded store. The forms of
// records, of stores and of evidence are tested beside them.
var kept = []struct {
	name, operation string
	form            int
	read            func(p *keeper) (string, error)
	want            string
}{
	{"counts", "semel.counts", 1, (*keeper).counts, "map[conflict:1 execute:1 replay:2]"},
	{"the list of conflicts", "semel.conflicts", 1, (*keeper).listed, "order-1 map[conflict:1]"},
	{"payloads that were refused", "semel.refused", 1, (*keeper).refused, `"another" 1`},
	{"figures", "semel.figures", 1, (*keeper).figured, "2 nodes, 7 deliveries, 3 repeated"},
	{"histories of payments", "semel.webhook.payment/card", 1, (*keeper).payment, "refunded 2"},
	{"states of synchronised data", "semel.datasync/datasync", 1, (*keeper).synced, `1 {"name":"Ada"}`},
	{"lanes of messages", "semel.dispatch", 1, (*keeper).delivered, "[first second]"},
	{"the head of the evidence log", "semel.cell", 1, (*keeper).head, "example.com/log, 26 entries"},
	{"the epoch", "semel.epoch", 1, (*keeper).epoch, "2000-01-01T00:00:00Z"},
	{"figures of a tenant", "semel.figures", 1, (*keeper).ofTenant, "7 deliveries, 2 stopped"},
	{"the list of nodes", "semel.nodes", 1, (*keeper).running, "node-1 v1.0.0"},
}

// since has the first recorded store with a form, of forms that are younger than the first.
var since = map[string]string{"figures of a tenant": "testdata/store-2", "the list of nodes": "testdata/store-2"}

// recordedStores are what programs have left, each record as package codec encodes it, in
// base64. Stores are added, for each new form; the newest is that of today's program.
var recordedStores = []string{"testdata/store-1", "testdata/store-2"}

// keeper is a program with all that keeps something beside its calls.
type keeper struct {
	*semel.Engine
	t       *testing.T
	st      semel.Store
	tally   *tally.Tally
	indexed *conflicts.Index
	counted *figures.Figures
	nodes   *nodes.Running
	hook    *webhook.Receiver
	replica *datasync.Replica
	stripe  *webhook.Source

	mu       sync.Mutex
	up       bool     // whether messages are accepted
	messages []string // delivered, in order
	paid     string   // what the newest event of a payment meant
}

// opened starts a program on a store, and returns what stops it.
func opened(t *testing.T, st semel.Store, up bool) (p *keeper, stop func()) {
	t.Helper()
	p = &keeper{t: t, st: st, tally: tally.New(st), indexed: conflicts.New(st), counted: figures.New(st, nil), nodes: nodes.NewRunning(st, "a"), up: up}
	p.nodes.Announce("node-1", "v1.0.0")
	runs := []func(context.Context){p.tally.Run, p.indexed.Run, p.counted.Run}
	opts := semel.Options{Node: "node-1", Operations: []semel.Operation{{Name: "pay", KeepPayload: true}}}
	if !up { // a recorded store has the head of a log, and not the log
		keys, err := evidence.GenerateKeys("example.com/log")
		must(t, err)
		log, err := evidence.New(st, keys, nil)
		must(t, err)
		opts.Witness, opts.Operations[0].Evidence = log, semel.EvidenceChanges
		runs = append(runs, func(ctx context.Context) { _ = log.Run(ctx) }) // it ends with ctx
	}
	events := p.counted.Events()
	decided := events.Decided
	events.Decided = func(e semel.Decided) {
		decided(e)
		p.indexed.Decided(e)
		p.tally.Count(e.ID, e.Decision)
	}
	events.Unswept = func(semel.Unswept) {}
	opts.Events = events
	var err error
	p.Engine, err = semel.New(st, &opts)
	must(t, err)
	p.stripe, err = webhook.Builtin("stripe")
	must(t, err)
	p.hook, err = webhook.New(p.Engine, webhook.Options{
		VerifierOptions: webhook.VerifierOptions{Source: p.stripe, Secrets: []string{secret}}, Tenant: "acme", Mode: webhook.Sync,
		Payments: webhook.CardMachine(), Handle: func(_ context.Context, e *webhook.Event) error {
			p.paid = fmt.Sprint(e.Payment.State, " ", e.Payment.Sequence)
			return nil
		},
	})
	must(t, err)
	p.replica, err = datasync.New(p.Engine, datasync.Options{
		Origin: "here", Apply: func(context.Context, datasync.State) error { return nil }, Send: func(context.Context, datasync.Change) error { return nil },
	})
	must(t, err)
	d, err := dispatch.New(p.Engine, dispatch.Options{Destinations: map[string]dispatch.Destination{"ledger": {Sender: p, MinBackoff: time.Second, MaxBackoff: 2 * time.Second}}})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	for _, run := range append(runs, func(ctx context.Context) { _ = d.Run(ctx) }) {
		work.Go(func() { run(ctx) })
	}
	return p, func() {
		cancel()
		work.Wait()
		must(t, p.Engine.Close(context.Background()))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Deliver is [dispatch.Sender.Deliver].
func (p *keeper) Deliver(_ context.Context, d dispatch.Delivery) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.up {
		return errors.New("the ledger is away")
	}
	p.messages = append(p.messages, string(d.Message.Payload))
	return nil
}

// work has something kept in every form.
func (p *keeper) work() {
	_, _ = p.Internal().NewEpoch(p.t.Context()) // errors: it is of a newer program
	for _, payload := range []string{"12 EUR", "12 EUR", "12 EUR", "another"} {
		_, _ = p.Do(p.t.Context(), p.call("order-1", payload), func(_ context.Context, x semel.Execution) (semel.Result, error) {
			return semel.Result{Data: []byte("paid")}, nil
		})
	}
	for _, name := range []string{"first", "second"} {
		_, _ = p.Do(p.t.Context(), p.call("order-"+name, "12 EUR"), func(_ context.Context, x semel.Execution) (semel.Result, error) {
			return semel.Result{}, semel.Send(x, semel.Message{Name: name, Destination: "ledger", Order: "one", Payload: []byte(name)})
		})
		pass(time.Minute) // the order is that of the times
	}
	_ = p.deliver(`{"id":"evt_1","type":"payment_intent.succeeded","data":{"object":{"id":"pi_1"}}}`)
	_, _ = p.replica.Put(p.t.Context(), ref, 1, json.RawMessage(`{"name":"Ada"}`))
	_ = p.nodes.Stay(p.t.Context(), time.Now().Unix(), false)
	pass(2 * time.Minute)
}

var ref = datasync.Ref{Tenant: "acme", Entity: "user", ID: "u1"}

// pass lets virtual time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (p *keeper) call(key, payload string) semel.Call {
	return semel.Call{
		Tenant: "acme", Principal: "alice", Operation: "pay", Key: key, Door: "http",
		Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(payload)), Payload: []byte(payload),
	}
}

// deliver delivers an event of a payment.
func (p *keeper) deliver(event string) error {
	d := &webhook.Delivery{Header: http.Header{}, Body: []byte(event)}
	must(p.t, p.stripe.Sign(d, secret, "", time.Now()))
	r := httptest.NewRequestWithContext(p.t.Context(), http.MethodPost, "/", bytes.NewReader(d.Body))
	r.Header = d.Header
	w := httptest.NewRecorder()
	p.hook.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		return fmt.Errorf("%d: the sender comes again", w.Code)
	}
	return nil
}

func (p *keeper) record() *semel.Record {
	rec, err := p.st.Get(p.t.Context(), semel.ID{Tenant: "acme", Principal: "alice", Operation: "pay", Key: "order-1"})
	must(p.t, err)
	return rec
}

func (p *keeper) counts() (string, error) {
	c, err := p.tally.Of(p.t.Context(), p.record())
	return fmt.Sprint(c), err
}

func (p *keeper) listed() (string, error) {
	list, err := p.indexed.List(p.t.Context(), nil)
	if len(list) != 1 {
		return fmt.Sprint(len(list), " conflicts"), err
	}
	return fmt.Sprint(list[0].ID.Key, " ", list[0].Decisions), err
}

func (p *keeper) refused() (string, error) {
	list, err := p.indexed.Refused(p.t.Context(), p.record())
	if len(list) != 1 {
		return fmt.Sprint(len(list), " payloads"), err
	}
	return fmt.Sprintf("%q %d", list[0].Payload, list[0].Count), err
}

func (p *keeper) figured() (string, error) {
	pass(5 * time.Minute) // until all minutes are over that are counted
	r, err := p.counted.Read(p.t.Context(), time.Hour, nil)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d nodes, %d deliveries, %d repeated", r.Nodes, r.Total.Deliveries, r.Repeated[0].Repeats), nil
}

func (p *keeper) ofTenant() (string, error) {
	pass(5 * time.Minute)
	acme := "acme"
	r, err := p.counted.Read(p.t.Context(), time.Hour, &acme)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d deliveries, %d stopped", r.Total.Deliveries, r.Total.Stopped), nil
}

func (p *keeper) running() (text string, err error) {
	list, err := p.nodes.List(p.t.Context())
	for _, n := range list {
		text += n.Name + " " + n.Version
	}
	return text, err
}

func (p *keeper) payment() (string, error) {
	err := p.deliver(`{"id":"evt_2","type":"charge.refunded","data":{"object":{"id":"ch_1","payment_intent":"pi_1","refunded":true}}}`)
	return p.paid, err
}

func (p *keeper) synced() (string, error) {
	s, err := p.replica.Get(p.t.Context(), ref, 1)
	if len(s.Changes) != 1 {
		return "", err
	}
	return fmt.Sprintf("%d %s", s.Version, s.Changes[0].Content), err
}

func (p *keeper) delivered() (string, error) {
	pass(10 * time.Minute) // after the pause between two tries
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprint(p.messages), nil
}

func (p *keeper) head() (string, error) {
	r, err := evidence.NewReader(p.t.Context(), p.st)
	if err != nil {
		return "", err
	}
	_, c := r.Checkpoint()
	return fmt.Sprintf("%s, %d entries", c.Origin, c.Size), nil
}

func (p *keeper) epoch() (string, error) {
	at, err := p.Internal().LoadEpoch(p.t.Context())
	return at.UTC().Format(time.RFC3339), err
}

// TestKeptForms reads what programs have kept, and leaves alone what a newer one keeps.
func TestKeptForms(t *testing.T) {
	for _, file := range recordedStores {
		if _, err := os.Stat(file); os.IsNotExist(err) && *add {
			synctest.Test(t, func(t *testing.T) { recordStore(t, file) })
		}
		for _, form := range kept {
			if file < since[form.name] {
				continue
			}
			t.Run(form.name+", from "+file, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					st := memstore.New()
					restored(t, st, file, nil)
					p, stop := opened(t, st, true)
					defer stop()
					if got, err := form.read(p); got != form.want || err != nil {
						t.Errorf("got %s, %v; want %s", got, err, form.want)
					}
				})
			})
		}
	}
	for _, form := range kept {
		if form.name == "the epoch" { // its time is that of its record
			continue
		}
		for what, newer := range map[string]func(data []byte) []byte{
			"a newer number":    func([]byte) []byte { return fmt.Appendf(nil, `{"form":%d}`, form.form+1) },
			"an unknown member": func(data []byte) []byte { return bytes.Replace(data, []byte("{"), []byte(`{"and more":1,`), 1) },
		} {
			t.Run(form.name+" with "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					st := memstore.New()
					changed := restored(t, st, recordedStores[len(recordedStores)-1], func(rec *semel.Record) bool {
						if rec.ID.Operation != form.operation {
							return false
						}
						rec.Result.Data = newer(rec.Result.Data)
						return true
					})
					if len(changed) == 0 {
						t.Fatal("nothing is kept in this form")
					}
					p, stop := opened(t, st, true)
					p.work()
					got, err := form.read(p)
					stop()
					if got == form.want && err == nil {
						t.Errorf("what a newer program has kept is read as %s", got)
					}
					for id, data := range changed {
						if rec, err := st.Get(t.Context(), id); err != nil || !bytes.Equal(rec.Result.Data, data) {
							t.Errorf("what a newer program has kept in %v was replaced: %v\n%s\nis now\n%s", id, err, data, rec.Result.Data)
						}
					}
				})
			})
		}
	}
}

// recordStore writes what today's program leaves.
func recordStore(t *testing.T, file string) {
	st := memstore.New()
	p, stop := opened(t, st, false)
	p.work()
	stop()
	var out bytes.Buffer
	for _, operation := range append([]string{""}, operationsKept()...) {
		for q := (store.Query{Operation: operation, Limit: store.MaxSearchLimit}); ; {
			page, err := st.Extras().Search.Search(t.Context(), q)
			must(t, err)
			for i := range page.Records {
				rec := &page.Records[i]
				if operation == "" && strings.HasPrefix(rec.ID.Operation, "semel.") {
					continue
				}
				b, err := codec.Append(nil, rec)
				must(t, err)
				fmt.Fprintln(&out, base64.StdEncoding.EncodeToString(b))
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
		}
	}
	must(t, os.WriteFile(file, out.Bytes(), 0o644))
}

func operationsKept() (list []string) {
	for _, form := range kept {
		list = append(list, form.operation)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// restored puts a recorded store into another, with records as change leaves them. It returns
// those that change has changed.
func restored(t *testing.T, st semel.Store, file string, change func(rec *semel.Record) bool) map[semel.ID][]byte {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	changed := map[semel.ID][]byte{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		b, err := base64.StdEncoding.DecodeString(lines.Text())
		must(t, err)
		rec, err := codec.Decode(b)
		must(t, err)
		if change != nil && change(rec) {
			changed[rec.ID] = rec.Result.Data
		}
		if _, ok, err := st.Apply(t.Context(), store.Write{Record: rec}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	must(t, lines.Err())
	return changed
}
