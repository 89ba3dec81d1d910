package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// evidenceWorld is a world that also serves an evidence log, in which calls of two tenants are.
func evidenceWorld(t *testing.T, change ...func(*Options)) (*world, *evidence.Log, *memstore.Store) {
	t.Helper()
	kept := memstore.New()
	log, engine := witnessed(t, kept)
	w := newWorld(t, append(change, func(o *Options) { o.Evidence = log })...)
	w.send("root", "GET", "/v1/evidence/export", "").refused(404, "not_found")
	for i := range 4 {
		paid(t, engine, []string{"acme", "evil"}[i%2], fmt.Sprint("order-", i/2), fmt.Sprint("req-", i))
	}
	if err := log.Integrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w, log, kept
}

// witnessed is an evidence log on a store, and an engine that writes it.
func witnessed(t *testing.T, kept semel.Store) (*evidence.Log, *semel.Engine) {
	t.Helper()
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	log, err := evidence.New(kept, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := semel.New(kept, &semel.Options{Witness: log, Operations: []semel.Operation{{Name: "pay", Evidence: semel.EvidenceDurable}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(log.Close(context.Background()), engine.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return log, engine
}

// paid pays once, and delivers the call again under another request id.
func paid(t *testing.T, engine *semel.Engine, tenant, key, request string) {
	t.Helper()
	for _, id := range []string{request, request + "-again"} {
		_, err := engine.Do(t.Context(), semel.Call{
			Tenant: tenant, Principal: "shop", Operation: "pay", Key: key, Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte("<1>")),
			Attributes: store.Attributes{store.AttributeRequestID: id},
		}, func(context.Context, semel.Execution) (semel.Result, error) {
			return semel.Result{Data: []byte("paid")}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// busyStore is a store that may have no time for reads of evidence.
type busyStore struct {
	*memstore.Store
	busy atomic.Bool
}

func (s *busyStore) Extras() store.Extras {
	all := s.Store.Extras()
	all.Evidence = s
	return all
}

func (s *busyStore) ReadEvidence(ctx context.Context, from uint64, limit int) ([]store.Entry, error) {
	if s.busy.Load() {
		return nil, fmt.Errorf("no free connection: %w", context.DeadlineExceeded)
	}
	return s.Store.ReadEvidence(ctx, from, limit)
}

// Where a store is too busy, nobody has given up the request.
func TestEvidenceOfABusyStore(t *testing.T) {
	kept := &busyStore{Store: memstore.New()}
	log, engine := witnessed(t, kept)
	paid(t, engine, "acme", "order-1", "req-1")
	if err := log.Integrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *Options) { o.Evidence = log })
	w.send("root", "GET", "/v1/evidence/entries", "").want(200)
	kept.busy.Store(true)
	got := w.send("root", "GET", "/v1/evidence/entries", "").refused(503, "store_unavailable")
	if detail := got.str("detail"); detail != "The evidence log can't be read at the moment." {
		t.Errorf("%q", detail)
	}
}

func (w *world) export(as, query string) []byte {
	w.t.Helper()
	g := w.send(as, "GET", "/v1/evidence/export?"+query, "").want(200)
	return g.Raw
}

func TestEvidenceOfACall(t *testing.T) {
	w, _, _ := evidenceWorld(t)
	record := func(tenant string) string {
		return semel.ID{Tenant: tenant, Principal: "shop", Operation: "pay", Key: "order-0"}.Encode()
	}
	list := func(as, query string) []wire.EvidenceEntry {
		t.Helper()
		var page wire.Evidence
		if err := json.Unmarshal(w.send(as, "GET", "/v1/evidence/entries?"+query, "").want(200).Raw, &page); err != nil {
			t.Fatal(err)
		}
		return page.Entries
	}
	for _, as := range []string{"viewer", "root"} {
		found := list(as, "record="+record("acme"))
		if len(found) != 3 {
			t.Fatalf("%s sees %d entries", as, len(found))
		}
		for _, e := range found {
			leaf, err := evidence.ParseArtifact(e.Leaf)
			if err != nil {
				t.Fatal(err)
			}
			if opening, err := evidence.ParseOpening(leaf, e.Opening); err != nil || opening.Tenant != "acme" || opening.IdempotencyKey != "order-0" {
				t.Errorf("%+v, %v", opening, err)
			}
		}
	}
	if found := list("viewer", "name=req-0-again"); len(found) != 3 {
		t.Errorf("a duplicate's id finds %d entries", len(found))
	}
	if found := list("root", "tenant=evil&name=req-1"); len(found) != 3 {
		t.Errorf("a tenant's id finds %d entries", len(found))
	}
	if found := list("viewer", "record="+record("acme")+"&from=100"); len(found) != 0 {
		t.Errorf("%d entries follow the last", len(found))
	}
	if found := list("viewer", "name=req-1"); len(found) != 0 {
		t.Errorf("another tenant's id finds %d entries", len(found))
	}
	w.send("viewer", "GET", "/v1/evidence/entries?record="+record("evil"), "").refused(404, "not_found")
	w.send("viewer", "GET", "/v1/evidence/entries?tenant=evil&name=req-1", "").refused(403, "forbidden")
	if found := list("root", ""); len(found) != 12 {
		t.Errorf("the whole log has %d entries", len(found))
	}
	w.send("viewer", "GET", "/v1/evidence/entries", "").refused(403, "forbidden")
	for _, query := range []string{"tenant=acme", "name=a&record=" + record("acme"), "tenant=acme&record=" + record("acme"), "record=a&more=1"} {
		w.send("root", "GET", "/v1/evidence/entries?"+query, "").want(400)
	}
	for _, path := range []string{"entries?name=a", "export", "checkpoint"} {
		w.sendTo(w.admin.URL, "shop", "GET", "/v1/evidence/"+path, "").refused(403, "forbidden")
		if path == "entries?name=a" {
			w.sendTo(w.data.URL, "root", "GET", "/v1/evidence/"+path, "").refused(403, "forbidden")
		} else {
			w.sendTo(w.data.URL, "root", "GET", "/v1/evidence/"+path, "").refused(404, "not_found")
		}
		newWorld(t).send("root", "GET", "/v1/evidence/"+path, "").want(501)
	}
}

// A verified caller reads the evidence of their own calls, with proofs, and of nobody else's.
func TestCallersReadTheirOwnEvidence(t *testing.T) {
	clause.Proves(t, "IDS-XII.7")
	w, _, _ := evidenceWorld(t)
	id := func(tenant, principal string) string {
		return "record=" + semel.ID{Tenant: tenant, Principal: principal, Operation: "pay", Key: "order-0"}.Encode()
	}
	for _, url := range []string{w.data.URL, w.admin.URL} {
		for _, query := range []string{id("acme", "shop"), id("acme", "shop") + "&newest=true"} {
			var page wire.Evidence
			if err := json.Unmarshal(w.sendTo(url, "shop", "GET", "/v1/evidence/entries?"+query, "").want(200).Raw, &page); err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Entries {
				leaf, err := evidence.ParseArtifact(e.Leaf)
				if err != nil {
					t.Fatal(err)
				}
				if o, err := evidence.ParseOpening(leaf, e.Opening); err != nil || o.Tenant != "acme" || o.Principal != "shop" || len(e.Proof) == 0 && page.Size != 0 {
					t.Errorf("%+v, %v", o, err)
				}
			}
			if len(page.Entries) != 3 {
				t.Errorf("%s finds %d entries", query, len(page.Entries))
			}
		}
		// Another tenant's with the same names, another's of the tenant, and those of nobody who
		// was verified.
		for as, query := range map[string]string{"shop": id("evil", "shop"), "other": id("acme", "shop"), "stranger": id("acme", "shop"), "first": id("acme", "credential:first"), "nothing": id("acme", "")} {
			w.sendTo(url, as, "GET", "/v1/evidence/entries?"+query, "").refused(404, "not_found")
		}
		for _, query := range []string{"", "name=order-0", "tenant=acme&name=order-0"} {
			w.sendTo(url, "shop", "GET", "/v1/evidence/entries?"+query, "").refused(403, "forbidden")
		}
	}
}

// TestNewestEvidence: there may be any number of entries, and a page has the newest of those
// before a number, each with its proof.
func TestNewestEvidence(t *testing.T) {
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	st := memstore.New()
	log, err := evidence.New(st, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *Options) { o.Evidence = log })
	get := func(query string) (page wire.Evidence) {
		t.Helper()
		if err := json.Unmarshal(w.send("root", "GET", "/v1/evidence/entries?newest=true"+query, "").want(200).Raw, &page); err != nil {
			t.Fatal(err)
		}
		return page
	}
	if page := get(""); len(page.Entries) != 0 || page.Size != 0 {
		t.Errorf("an empty log has %+v", page)
	}
	if c := w.send("root", "GET", "/v1/evidence/checkpoint", "").want(200); c.str("signed") != "" || c.str("origin") != "example.com/log" {
		t.Errorf("the checkpoint of an empty log is %s", c.Raw)
	}
	id := semel.ID{Tenant: "acme", Principal: "shop", Operation: "pay", Key: "order-0"}
	add := func(n int, s store.Subject) {
		var entries []store.Entry
		for range n {
			entries = append(entries, store.Entry{Leaf: fmt.Appendf(nil, `{"v":1,"artifact_id":"<%d>"}`, n), Subject: s})
		}
		if err := st.AppendEvidence(t.Context(), entries); err != nil {
			t.Fatal(err)
		}
	}
	add(70, log.Subject(id))
	add(10, store.Subject{2})
	add(60, log.Subject(id))
	if err := log.Integrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	add(5, log.Subject(id)) // not signed yet
	for about, want := range map[string][]int{"&record=" + id.Encode(): {50, 50, 35}, "": {50, 50, 40}} {
		query, last := about, uint64(1<<62)
		for i, n := range want {
			page := get(query)
			if len(page.Entries) != n || (page.Next == 0) != (i == len(want)-1) || page.Size != 140 {
				t.Fatalf("page %d has %d entries, and %d follows", i, len(page.Entries), page.Next)
			}
			for _, e := range page.Entries {
				if e.N >= last {
					t.Fatalf("entry %d follows %d", e.N, last)
				}
				last = e.N
				checkProof(t, &page, &e)
			}
			query = about + "&before=" + strconv.FormatUint(page.Next, 10)
		}
	}
	if page := get("&before=1"); len(page.Entries) != 1 || page.Next != 0 {
		t.Errorf("before 1 there are %+v", page)
	}
}

// checkProof checks an entry by nothing but its page.
func checkProof(t *testing.T, page *wire.Evidence, e *wire.EvidenceEntry) {
	t.Helper()
	if (e.Proof != nil) != (e.N < page.Size) {
		t.Errorf("entry %d has the proof %v", e.N, e.Proof)
	}
	if e.Proof == nil {
		return
	}
	hash := func(text string) tlog.Hash {
		h, err := tlog.ParseHash(text)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	var proof tlog.RecordProof
	for _, text := range e.Proof {
		proof = append(proof, hash(text))
	}
	if err := tlog.CheckRecord(proof, int64(page.Size), hash(page.Root), int64(e.N), tlog.RecordHash(e.Leaf)); err != nil {
		t.Errorf("entry %d: %v", e.N, err)
	}
}

// TestVerifyEvidence: each caller has verified what they may see.
func TestVerifyEvidence(t *testing.T) {
	w, _, kept := evidenceWorld(t)
	for as, want := range map[string]struct {
		view    string
		entries json.Number
	}{"root": {"log", "12"}, "viewer": {"tenant", "6"}} {
		got := w.send(as, "POST", "/v1/evidence/verify", "").want(200)
		if got.str("view") != want.view || got.at("entries") != want.entries || got.at("finding") != nil {
			t.Errorf("%s: %s", as, got.Raw)
		}
	}
	if c := w.send("viewer", "GET", "/v1/evidence/checkpoint", "").want(200); c.at("size") != json.Number("12") || !strings.Contains(c.str("signed"), "example.com/log") {
		t.Errorf("the checkpoint is %s", c.Raw)
	}
	entries, err := kept.ReadEvidence(t.Context(), 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	entries[0].Leaf[5] ^= 1 // which the store has, too
	if got := w.send("root", "POST", "/v1/evidence/verify", "").want(200); got.str("finding.kind") != "changed" {
		t.Errorf("a changed leaf: %s", got.Raw)
	}
}

func TestEvidenceIsExported(t *testing.T) {
	w, log, _ := evidenceWorld(t)
	verify := func(text []byte, view string, entries uint64) {
		t.Helper()
		report, err := evidence.Verify(bytes.NewReader(text), log.Trust(), nil)
		if err != nil || report.Finding != nil || report.View != view || report.Entries != entries {
			t.Errorf("%+v, %v", report, err)
		}
	}
	verify(w.export("root", ""), "log", 12)
	verify(w.export("root", "tenant=evil"), "tenant", 6)
	verify(w.export("root", "entries=3,1,3"), "entries", 2)
	mine := w.export("viewer", "")
	if verify(mine, "tenant", 6); bytes.Contains(mine, []byte("evil")) {
		t.Errorf("another tenant's entries are shown: %s", mine)
	}
	verify(w.export("viewer", "entries=0"), "entries", 1)
	if text := w.export("root", "no_openings=true"); bytes.Contains(text, []byte("order-0")) {
		t.Errorf("openings are shown: %s", text)
	}
	w.send("viewer", "GET", "/v1/evidence/export?entries=0,3", "").refused(403, "forbidden")
	w.send("viewer", "GET", "/v1/evidence/export?tenant=evil", "").refused(403, "forbidden")
	w.send("root", "GET", "/v1/evidence/export?entries=12", "").refused(404, "not_found")
	w.send("root", "GET", "/v1/evidence/export?entries=-1", "").want(404)
}

// brokenEvidence is a store whose evidence breaks after some reads.
type brokenEvidence struct {
	*memstore.Store
	reads atomic.Int64 // that still work
}

func (b *brokenEvidence) Extras() store.Extras {
	x := b.Store.Extras()
	x.Evidence = b
	return x
}

func (b *brokenEvidence) ReadEvidence(ctx context.Context, from uint64, limit int) ([]store.Entry, error) {
	if b.reads.Add(-1) < 0 {
		return nil, errors.New("the disk is gone")
	}
	return b.Store.ReadEvidence(ctx, from, min(limit, 3))
}

// TestABrokenExportIsNotTakenForTheWhole: the connection breaks, so that a client notices,
// whatever it thinks of the last line.
func TestABrokenExportIsNotTakenForTheWhole(t *testing.T) {
	_, _, kept := evidenceWorld(t)
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	broken := &brokenEvidence{Store: kept}
	broken.reads.Store(2)
	log, err := evidence.New(broken, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *Options) { o.Evidence = log })
	req, err := http.NewRequestWithContext(t.Context(), "GET", w.admin.URL+"/v1/evidence/export", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer root")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return // nothing had been sent yet
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("status %d and no error after %s", resp.StatusCode, text)
	}
}

// TestAReaderThatStopsIsCutOff: an export waits for nobody for ever.
func TestAReaderThatStopsIsCutOff(t *testing.T) {
	ended := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		paced := &pacedWriter{w, 20 * time.Millisecond}
		var err error
		for err == nil {
			_, err = paced.Write(make([]byte, 1<<20))
		}
		ended <- err
	}))
	defer srv.Close()
	conn, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if err := <-ended; err == nil {
		t.Error("nothing ended it")
	}
}

// deadlines is an answer that notes the deadlines it gets.
type deadlines struct {
	http.ResponseWriter
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

func TestAnExportLeavesNoDeadline(t *testing.T) {
	d := &deadlines{ResponseWriter: httptest.NewRecorder()}
	paced := &pacedWriter{d, time.Minute}
	if n, err := paced.Write(make([]byte, 2*pieceSize+1)); n != 2*pieceSize+1 || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	paced.end()
	if len(d.set) != 4 || time.Until(d.set[2]) < time.Second || !d.set[3].IsZero() {
		t.Errorf("the deadlines were %v", d.set)
	}
}
