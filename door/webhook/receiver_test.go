package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// rig is a receiver on a store, and an outbox that is worked on when it is told.
type rig struct {
	t        *testing.T
	receiver *Receiver
	engine   *semel.Engine
	store    *flaky
	log      *evidence.Log

	mu      sync.Mutex
	due     [][]byte       // of the outbox
	handled map[string]int // by id
	keys    map[string]string
	tries   int    // of the handler
	tried   string // the id that it got last
	seen    []seen
	fail    error
	hold    chan struct{} // handlers end when it is closed; nil: at once
}

// flaky is a store that can be away.
type flaky struct {
	semel.Store
	mu   sync.Mutex
	away bool
	full string // keys with this text can't be written
	// meet, if it is set, holds the first reads of the states of payments until as many
	// have come as it waits for.
	meet *sync.WaitGroup
	read atomic.Int64
}

func (s *flaky) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	rec, err := s.Store.Get(ctx, id)
	if s.meet != nil && strings.HasPrefix(id.Operation, store.PaymentOperation) && s.read.Add(1) <= 2 {
		s.meet.Done()
		s.meet.Wait()
	}
	return rec, err
}

func (s *flaky) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	s.mu.Lock()
	away, full := s.away, s.full != "" && strings.Contains(w.Record.ID.Key, s.full)
	s.mu.Unlock()
	if full {
		return nil, false, fmt.Errorf("the store is full: %w", store.ErrNotApplied)
	}
	if away {
		return nil, false, errors.New("the store is away")
	}
	return s.Store.Apply(ctx, w)
}

func (s *flaky) set(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

func newRig(t *testing.T, source string, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, store: &flaky{Store: memstore.New()}, handled: map[string]int{}, keys: map[string]string{}}
	keys, err := evidence.GenerateKeys("example.com/webhook")
	if err != nil {
		t.Fatal(err)
	}
	if r.log, err = evidence.New(r.store, keys, nil); err != nil {
		t.Fatal(err)
	}
	events := &semel.Events{Answered: func(e semel.Delivered) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seen = append(r.seen, seenBy(t, e))
	}}
	if r.engine, err = semel.New(r.store, &semel.Options{Witness: r.log, Events: events}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.store.set(false)
		if err := errors.Join(r.log.Close(context.Background()), r.engine.Close(context.Background()), r.store.Close()); err != nil {
			t.Error(err)
		}
	})
	r.engine.Internal().SetDispatcher(r.dispatch)
	v := vectors[slices.IndexFunc(vectors, func(v vector) bool { return v.source == source })]
	s, err := Builtin(source)
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{
		VerifierOptions: VerifierOptions{Source: s, Secrets: []string{v.secret}, URL: v.url, Endpoint: endpoint, Now: func() time.Time { return signedAt }},
		Tenant:          "acme", Handle: r.handle, Evidence: semel.EvidenceDurable, VerifyToken: "the owner's token",
	}
	for _, c := range change {
		c(&opts)
	}
	if r.receiver, err = New(r.engine, opts); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) dispatch(rec *semel.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range rec.Outbox {
		if rec.Outbox[i].Destination != r.receiver.Destination() {
			r.t.Errorf("a message to %s", rec.Outbox[i].Destination)
		}
		if rec.Outbox[i].State == store.MessagePending {
			r.due = append(r.due, rec.Outbox[i].Payload)
		}
	}
}

func (r *rig) handle(_ context.Context, e *Event) error {
	if r.hold != nil {
		<-r.hold
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries, r.tried = r.tries+1, e.ID
	if r.fail != nil {
		return r.fail
	}
	r.handled[e.ID]++
	r.keys[e.Key] = string(e.Body)
	return nil
}

// work handles what is due.
func (r *rig) work() (errs []error) {
	r.mu.Lock()
	due := r.due
	r.due = nil
	r.mu.Unlock()
	for _, payload := range due {
		errs = append(errs, r.receiver.Work(context.Background(), payload))
	}
	return errs
}

// post delivers d.
func (r *rig) post(d *Delivery) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, "/hook?"+d.Query, bytes.NewReader(d.Body))
	maps.Copy(req.Header, d.Header)
	w := httptest.NewRecorder()
	r.receiver.ServeHTTP(w, req)
	return w
}

func (r *rig) want(d *Delivery, status int) {
	r.t.Helper()
	if w := r.post(d); w.Code != status {
		r.t.Errorf("status %d, want %d: %s", w.Code, status, w.Body)
	}
}

func (r *rig) decisions() (list []semel.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.seen {
		list = append(list, s.Decision)
	}
	slices.Sort(list)
	return list
}

func vectorOf(t *testing.T, file string) (vector, *Delivery) {
	t.Helper()
	v := vectors[slices.IndexFunc(vectors, func(v vector) bool { return v.file == file })]
	return v, v.delivery(t)
}

// resign is the delivery with another body, signed with the secret.
func resign(t *testing.T, file, body string, header ...string) *Delivery {
	t.Helper()
	v, d := vectorOf(t, file)
	d.Body = []byte(body)
	for i := 0; i < len(header); i += 2 {
		d.Header.Set(header[i], header[i+1])
	}
	s, err := Builtin(v.source)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Sign(d, v.secret, v.url, signedAt); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestShopify is what the idempotency map asks of Shopify's webhooks: the key from the
// header, the signature verified, and the log checked before an event is handled.
func TestShopify(t *testing.T) {
	clause.Proves(t, "MAP-HOOK.1")
	for _, mode := range []Mode{Ack, Sync} {
		t.Run(string(mode), func(t *testing.T) {
			r := newRig(t, "shopify", func(o *Options) { o.Mode = mode })
			_, d := vectorOf(t, "shopify")
			forged := *d
			forged.Body = []byte(`{"id":1}`)
			r.want(&forged, http.StatusUnauthorized)
			for range 3 {
				r.want(d, http.StatusOK)
				r.work()
			}
			const key = "webhook:shopify:98880550-7158-44d4-b7cd-2c97c8a091b5"
			if len(r.handled) != 1 || r.keys[key] != string(d.Body) {
				t.Errorf("handled %v, %v", r.handled, r.keys)
			}
			for id, n := range r.handled {
				if n != 1 {
					t.Errorf("%s was handled %d times", id, n)
				}
			}
			if got := r.decisions(); !slices.Equal(got, []semel.Decision{"", semel.Execute, semel.Replay, semel.Replay}) {
				t.Errorf("%v", got)
			}
			rec, err := r.store.Get(context.Background(), (&semel.Call{
				Tenant: "acme", Principal: Principal, Scope: "acme.myshopify.com:orders/create", Operation: "webhook.shopify", Key: key,
			}).ID(semel.SharePrincipal))
			if err != nil || rec.State != semel.Completed || rec.ExpiresAt.Sub(rec.EndedAt) < 7*24*time.Hour {
				t.Errorf("%+v, %v", *rec, err)
			}
		})
	}
	t.Run("the same id in another shop is another event", func(t *testing.T) {
		r := newRig(t, "shopify")
		_, d := vectorOf(t, "shopify")
		r.want(d, http.StatusOK)
		d.Header.Set("X-Shopify-Shop-Domain", "other.myshopify.com")
		r.want(d, http.StatusOK)
		if r.work(); len(r.handled) != 2 {
			t.Errorf("handled %v", r.handled)
		}
	})
	t.Run("a delivery without an id is refused", func(t *testing.T) {
		r := newRig(t, "shopify")
		_, d := vectorOf(t, "shopify")
		d.Header.Del("X-Shopify-Event-Id")
		d.Header.Del("X-Shopify-Webhook-Id")
		r.want(d, http.StatusBadRequest)
	})
}

func TestTheSameIDWithAnotherBodyIsAConflict(t *testing.T) {
	r := newRig(t, "stripe")
	body := func(pending int, amount string) string {
		return fmt.Sprintf(`{"id":"evt_1","type":"charge.succeeded","pending_webhooks":%d,"amount":%s}`, pending, amount)
	}
	r.want(resign(t, "stripe", body(2, "100")), http.StatusOK)
	r.want(resign(t, "stripe", body(1, "100.0")), http.StatusOK)
	r.want(resign(t, "stripe", body(2, "999")), http.StatusOK)
	if r.work(); len(r.keys) != 1 || r.keys["webhook:stripe:evt_1"] != body(2, "100") {
		t.Errorf("handled %v", r.keys)
	}
	if got := r.decisions(); !slices.Equal(got, []semel.Decision{semel.Conflict, semel.Execute, semel.Replay}) {
		t.Errorf("%v", got)
	}
	conflict := r.seen[slices.IndexFunc(r.seen, func(s seen) bool { return s.Decision == semel.Conflict })]
	if conflict.receiver != "stripe" || conflict.ID.Key != "webhook:stripe:evt_1" || conflict.first == conflict.content || conflict.first == "" || conflict.content == "" {
		t.Errorf("it is reported as %+v", conflict)
	}
	// Support has the event's own id, from the sender's pages, and finds both.
	found, err := r.engine.Search(t.Context(), store.Query{Attributes: store.Attributes{"event_id": "evt_1"}})
	var names []string
	for _, rec := range found.Records {
		names = append(names, rec.ID.String())
	}
	if len(names) != 2 || err != nil || !slices.Contains(names, conflict.ID.String()) || !slices.Contains(names, conflict.parked) {
		t.Errorf("by its event id: %q, %v, want %q and %q", names, err, conflict.ID, conflict.parked)
	}
	leaf := r.conflict((&semel.Call{Tenant: "acme", Principal: Principal, Operation: "webhook.stripe", Key: "webhook:stripe:evt_1"}).ID(semel.SharePrincipal))
	if p := leaf.Payload; p.Reason != evidence.ReasonConflict || p.Fingerprint == "" || p.Presented == "" || p.Fingerprint == p.Presented {
		t.Errorf("the evidence of the conflict is %+v", leaf)
	}
}

// conflict is the entry of the evidence log about a conflict.
func (r *rig) conflict(id semel.ID) evidence.Artifact {
	r.t.Helper()
	ctx := context.Background()
	if err := errors.Join(r.log.Close(ctx), r.log.Integrate(ctx)); err != nil {
		r.t.Fatal(err)
	}
	reader, err := r.log.Reader(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	numbers, err := reader.Find(ctx, r.log.Subject(id))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, n := range numbers {
		en, err := reader.Entry(ctx, n)
		if err != nil {
			r.t.Fatal(err)
		}
		leaf, err := evidence.ParseArtifact(en.Leaf)
		if err != nil {
			r.t.Fatal(err)
		}
		if leaf.Payload.Decision == evidence.DecisionConflict {
			return leaf
		}
	}
	r.t.Fatal("the evidence log has no conflict")
	return evidence.Artifact{}
}

func TestABatchIsSplit(t *testing.T) {
	r := newRig(t, "whatsapp")
	_, d := vectorOf(t, "whatsapp")
	r.want(d, http.StatusOK)
	one := resign(t, "whatsapp", `{"entry":[{"changes":[{"value":{"metadata":{"phone_number_id":"770001"},"messages":[
		{"from":"351910000007","id":"wamid.B","timestamp":"1614265330","type":"text","text":{"body":"again"}},
		{"id":"wamid.D"}, {"no":"id"}, "nothing"]}}]}]}`)
	r.want(one, http.StatusOK)
	r.want(one, http.StatusOK)
	errs := r.work()
	if len(r.handled) != 5 || r.keys["webhook:whatsapp:770001:wamid.D"] != `{"id":"wamid.D"}` {
		t.Errorf("handled %v", r.keys)
	}
	refused := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(refused) != 2 {
		t.Errorf("%v, want the two without an id", refused)
	}
	for _, err := range refused {
		wantCode(t, err, CodeUnidentified)
	}
}

func TestItemsOfAdyenAreSignedEachForItself(t *testing.T) {
	item := func(psp, event, more string) string {
		return fmt.Sprintf(`{"NotificationRequestItem":{"pspReference":%q,"eventCode":%q,"success":"true","amount":{"value":10,"currency":"EUR"}%s}}`, psp, event, more)
	}
	batch := func(items ...string) string { return `{"notificationItems":[` + strings.Join(items, ",") + `]}` }
	sign := func(items ...string) *Delivery { return resign(t, "adyen", batch(items...)) }
	t.Run("each is handled once", func(t *testing.T) {
		r := newRig(t, "adyen")
		if w := r.post(sign(item("P1", "AUTHORISATION", ""), item("P2", "AUTHORISATION", ""))); w.Code != 200 || w.Body.String() != "[accepted]" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		r.want(sign(item("P2", "AUTHORISATION", ""), item("P1", "CAPTURE", "")), http.StatusOK)
		if r.work(); len(r.handled) != 3 {
			t.Errorf("handled %v", r.keys)
		}
	})
	t.Run("one with a wrong signature spoils the delivery", func(t *testing.T) {
		r := newRig(t, "adyen")
		d := sign(item("P1", "AUTHORISATION", ""), item("P2", "AUTHORISATION", ""))
		d.Body = bytes.Replace(d.Body, []byte("P2"), []byte("P3"), 1)
		r.want(d, http.StatusUnauthorized)
		if r.work(); len(r.handled) != 0 {
			t.Errorf("handled %v", r.keys)
		}
	})
	t.Run("one with a name that comes twice can't be read", func(t *testing.T) {
		r := newRig(t, "adyen")
		d := sign(item("P1", "AUTHORISATION", ""))
		d.Body = bytes.Replace(d.Body, []byte(`"success":"true"`), []byte(`"success":"false","success":"true"`), 1)
		r.want(d, http.StatusBadRequest)
	})
	t.Run("one with a colon moved into another field isn't the signed one", func(t *testing.T) {
		r := newRig(t, "adyen")
		d := sign(item("P1", "AUTHORISATION", `,"originalReference":"","merchantAccountCode":"ACME","merchantReference":"order:77"`))
		r.want(d, http.StatusOK)
		// All of them have the signed text of the first: P1::ACME:order:77:10:EUR:…
		for _, moved := range []string{
			`"merchantAccountCode":"ACME:order","merchantReference":"77","originalReference":"","pspReference":"P1"`,
			`"merchantAccountCode":"order","merchantReference":"77","originalReference":":ACME","pspReference":"P1"`,
			`"merchantAccountCode":"order","merchantReference":"77","originalReference":"ACME","pspReference":"P1:"`,
		} {
			const genuine = `"merchantAccountCode":"ACME","merchantReference":"order:77","originalReference":"","pspReference":"P1"`
			forged := &Delivery{Header: d.Header, Body: bytes.Replace(d.Body, []byte(genuine), []byte(moved), 1)}
			if bytes.Equal(forged.Body, d.Body) {
				t.Fatalf("%s is not in %s", genuine, d.Body)
			}
			if w := r.post(forged); w.Code != http.StatusUnauthorized {
				t.Errorf("with %s: %d %s", moved, w.Code, w.Body)
			}
		}
		if r.work(); len(r.handled) != 1 {
			t.Errorf("handled %v", r.keys)
		}
	})
	t.Run("there are 100 at most, and none is looked at behind a wrong one", func(t *testing.T) {
		r := newRig(t, "adyen")
		var items []string
		for i := range maxSigned + 1 {
			items = append(items, item(fmt.Sprintf("P%d", i), "CAPTURE", ""))
		}
		r.want(sign(items...), http.StatusRequestEntityTooLarge)
		r.want(sign(items[:maxSigned]...), http.StatusOK)
		if r.work(); len(r.handled) != maxSigned {
			t.Errorf("%d are handled", len(r.handled))
		}
	})
	t.Run("a body without items is not signed", func(t *testing.T) {
		r := newRig(t, "adyen")
		for body, status := range map[string]int{`{}`: 401, `{"notificationItems":[]}`: 401, `not JSON`: 400, `{"notificationItems":[],"notificationItems":[]}`: 401} {
			r.want(&Delivery{Header: http.Header{}, Body: []byte(body)}, status)
		}
	})
}

func TestAnEventThatCannotBeTakenComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "shopify", func(o *Options) { o.Evidence = "" })
		_, d := vectorOf(t, "shopify")
		r.store.set(true)
		w := r.post(d)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		r.store.set(false)
		<-time.After(time.Minute)
		r.want(d, http.StatusOK)
		if r.work(); len(r.handled) != 1 {
			t.Errorf("handled %v", r.handled)
		}
	})
}

func TestASenderThatHangsUpHasItsEventTaken(t *testing.T) {
	r := newRig(t, "shopify", func(o *Options) { o.Evidence = "" })
	_, d := vectorOf(t, "shopify")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/hook", bytes.NewReader(d.Body))
	maps.Copy(req.Header, d.Header)
	r.receiver.ServeHTTP(httptest.NewRecorder(), req)
	if r.work(); len(r.handled) != 1 {
		t.Errorf("handled %v", r.handled)
	}
}

func TestSync(t *testing.T) {
	sync := func(o *Options) { o.Mode, o.Evidence = Sync, "" }
	t.Run("an error lets the sender deliver again", func(t *testing.T) {
		r := newRig(t, "github", sync)
		_, d := vectorOf(t, "github")
		r.fail = errors.New("no")
		r.want(d, http.StatusServiceUnavailable)
		r.fail = nil
		r.want(d, http.StatusOK)
		r.want(d, http.StatusOK)
		if len(r.handled) != 1 || r.handled[slices.Collect(maps.Keys(r.handled))[0]] != 1 {
			t.Errorf("handled %v", r.handled)
		}
	})
	t.Run("an event that is rejected is not delivered again", func(t *testing.T) {
		r := newRig(t, "github", sync)
		_, d := vectorOf(t, "github")
		r.fail = semel.Rejected("no", errors.New("never"))
		r.want(d, http.StatusOK)
		r.want(d, http.StatusOK)
	})
	t.Run("one whose effect is unknown is held", func(t *testing.T) {
		r := newRig(t, "github", sync)
		_, d := vectorOf(t, "github")
		r.fail = semel.Unknown(errors.New("no answer"))
		r.want(d, http.StatusServiceUnavailable)
		r.fail = nil
		r.want(d, http.StatusServiceUnavailable)
		if len(r.handled) != 0 {
			t.Errorf("handled %v", r.handled)
		}
	})
	t.Run("its handler has the lease that was asked for", func(t *testing.T) {
		for lease, want := range map[time.Duration]time.Duration{0: semel.DefaultLease, 2 * time.Second: 2 * time.Second} {
			r := newRig(t, "github", func(o *Options) { sync(o); o.Lease = lease })
			if op, ok := r.engine.Internal().Operation(r.receiver.Destination()); !ok || op.Lease != want {
				t.Errorf("lease %v became %v", lease, op.Lease)
			}
		}
	})
	t.Run("a sender that hangs up keeps no handler from ending", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, "github", sync)
			_, d := vectorOf(t, "github")
			r.hold = make(chan struct{})
			r.want(d, http.StatusServiceUnavailable)
			r.want(d, http.StatusServiceUnavailable)
			close(r.hold)
			synctest.Wait()
			r.want(d, http.StatusOK)
			if r.handled[slices.Collect(maps.Keys(r.handled))[0]] != 1 {
				t.Errorf("handled %v", r.handled)
			}
		})
	})
}

func TestConcurrentCopiesAreOneEvent(t *testing.T) {
	for _, mode := range []Mode{Ack, Sync} {
		r := newRig(t, "shopify", func(o *Options) { o.Mode, o.Evidence = mode, "" })
		_, d := vectorOf(t, "shopify")
		var group sync.WaitGroup
		for range 32 {
			group.Go(func() { r.want(d, http.StatusOK) })
		}
		group.Wait()
		r.work()
		if len(r.handled) != 1 || r.handled[slices.Collect(maps.Keys(r.handled))[0]] != 1 {
			t.Errorf("%s: handled %v", mode, r.handled)
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	r := newRig(t, "github", func(o *Options) { o.MaxBody = 2 << 20 })
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		w := httptest.NewRecorder()
		r.receiver.ServeHTTP(w, httptest.NewRequest(method, "/hook", nil))
		var p struct{ Code, Detail, Action string }
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 405 || w.Header().Get("Allow") != "POST" || p.Code != "method_not_allowed" || p.Action != "fix_request" {
			t.Errorf("%s: %d %v %s", method, w.Code, w.Header(), w.Body)
		}
	}
	r.want(resign(t, "github", strings.Repeat("x", 2<<20+1)), http.StatusRequestEntityTooLarge)
	r.want(resign(t, "github", strings.Repeat("x", MaxEvent+1)), http.StatusRequestEntityTooLarge)
	r.want(resign(t, "github", strings.Repeat("x", MaxEvent)), http.StatusOK)
}

func TestOptions(t *testing.T) {
	s, err := Builtin("whatsapp")
	if err != nil {
		t.Fatal(err)
	}
	st := memstore.New()
	engine, err := semel.New(st, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(context.Background())
	_, err = New(engine, Options{
		VerifierOptions: VerifierOptions{Source: s, Secrets: []string{"short"}}, Name: "A", Mode: "later", Window: time.Hour, Budget: -1, MaxBody: -1,
	})
	for _, want := range []string{"fewer than 8", "Name", "Mode", "Handle", "VerifyToken", "Window 1h0m0s is shorter", "Budget", "MaxBody"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, without %s", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "\"short\"") {
		t.Error("the error has the secret")
	}
	if _, err := New(nil, Options{}); err == nil {
		t.Error("no engine")
	}
	if _, err := New(engine, Options{}); err == nil {
		t.Error("no source")
	}
}
