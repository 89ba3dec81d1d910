package cli

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/store"
)

// evidentStore is a configuration of an embedded store with evidence, and an engine on it
// until it is closed.
func evidentStore(t *testing.T) (file, dir string, engine *semel.Engine, st semel.Store, end func()) {
	t.Helper()
	dir = t.TempDir()
	if code, _, errs := semelWith(t, "", "evidence", "keygen", "--origin", "example.com/log", "--out", filepath.Join(dir, "evidence.key")); code != ExitOK {
		t.Fatal(errs)
	}
	file = filepath.Join(dir, "semel.yaml")
	text := "api: 'off'\nstore: {url: 'pebble:" + filepath.Join(dir, "store") + "'}\noperations: [{name: pay, evidence: durable}]\nevidence: {key_file: '" + filepath.Join(dir, "evidence.key") + "'}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	st, err := service.OpenStore(t.Context(), config.Store{URL: "pebble:" + filepath.Join(dir, "store")})
	if err != nil {
		t.Fatal(err)
	}
	log, err := service.OpenEvidence(&config.Evidence{KeyFile: filepath.Join(dir, "evidence.key")}, st, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	engine, err = semel.New(st, &semel.Options{Witness: log, Operations: []semel.Operation{{Name: "pay", Evidence: semel.EvidenceDurable}}})
	if err != nil {
		t.Fatal(err)
	}
	return file, dir, engine, st, func() {
		t.Helper()
		ctx := context.Background()
		if err := errors.Join(log.Close(ctx), log.Integrate(ctx), engine.Close(ctx), st.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func command(key, id, payload string) semel.Call {
	return semel.Call{
		Tenant: "acme", Principal: "alice", Operation: "pay", Key: key, Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(payload)),
		Attributes: store.Attributes{semel.AttributeCommandID: id},
	}
}

// A settlement is told as one, with who and why, wherever the call is told of.
func TestASettlementIsToldAsOne(t *testing.T) {
	t.Parallel()
	file, dir, engine, _, end := evidentStore(t)
	ans, err := engine.Begin(t.Context(), command("order-1", "cmd-1", "p"))
	if err := errors.Join(err, ans.Attempt.Hold(t.Context(), "the upstream did not answer")); err != nil {
		t.Fatal(err)
	}
	end()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		code, out, errs := semelWith(t, "", append(args, "--config", file)...)
		if code != ExitOK {
			t.Fatalf("%s: exit %d, %s", args, code, errs)
		}
		return out
	}
	name := []string{"--tenant", "acme", "--principal", "alice", "--operation", "pay", "--key", "order-1"}
	run(append([]string{"records", "settle", "--outcome", "completed", "--result", "by hand", "--reason", "seen at the bank, ticket 77", "--yes"}, name...)...)

	said := "by " + me.Username + ": seen at the bank, ticket 77"
	for what, out := range map[string]string{
		"why":           run("why", "order-1"),
		"records get":   run(append([]string{"records", "get"}, name...)...),
		"evidence show": run("evidence", "show", "--tenant", "acme", "cmd-1"),
	} {
		if !strings.Contains(strings.ReplaceAll(out, `"`, ""), said) || strings.Contains(out, "it was executed") || strings.Contains(out, "executed once") {
			t.Errorf("%s says\n%s", what, out)
		}
	}
	if out := run("records", "list", "--wide"); !strings.Contains(out, "settled as completed by") {
		t.Error(out)
	}
	var rec struct{ Settled store.Settled }
	if err := json.Unmarshal([]byte(run(append([]string{"records", "get", "--json"}, name...)...)), &rec); err != nil ||
		rec.Settled.By != "operator" || rec.Settled.Who != me.Username || rec.Settled.Reason != "seen at the bank, ticket 77" || rec.Settled.At == 0 {
		t.Errorf("%+v, %v", rec, err)
	}
	var entries []evidence.OpenEntry
	if err := json.Unmarshal([]byte(run("evidence", "show", "--tenant", "acme", "--json", "order-1")), &entries); err != nil || len(entries) != 3 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	last := entries[2]
	if p := last.Leaf.Payload; last.Leaf.Type != evidence.TypeSettled || p.By != "operator" || p.Change != store.ChangeSettled || p.OutcomeRef == "" {
		t.Errorf("the leaf is %+v", last.Leaf)
	}
	if o := last.Opening; o.SettledBy != me.Username || o.Reason != "seen at the bank, ticket 77" {
		t.Errorf("the opening is %+v", o)
	}
	log := run("evidence", "export", "--out", filepath.Join(dir, "log.jsonl"))
	text, err := os.ReadFile(filepath.Join(dir, "log.jsonl"))
	if err != nil || strings.Contains(string(text), `"execution.executed"`) || strings.Count(string(text), "ticket 77") != 1 {
		t.Errorf("%s: the export says\n%s, %v", log, text, err)
	}

	run(append([]string{"records", "purge", "--reason", "asked for by the customer", "--yes"}, name...)...)
	if out := run("evidence", "show", "--tenant", "acme", "order-1"); !regexp.MustCompile(`purged the record by .*asked for by the customer`).MatchString(out) {
		t.Error(out)
	}
}

// Support has the id of the delivery that was refused, or answered as a duplicate.
func TestEvidenceIsFoundByEveryID(t *testing.T) {
	t.Parallel()
	clause.Proves(t, "IDS-XII.5")
	file, _, engine, _, end := evidentStore(t)
	run := func(ctx context.Context, x semel.Execution) (semel.Result, error) {
		return semel.Result{Data: []byte("paid")}, nil
	}
	for id, payload := range map[string]string{"cmd-duplicate": "p", "cmd-rejected": "another"} {
		c := command("order-1", "cmd-first", "p")
		if _, err := engine.Do(t.Context(), c, run); err != nil {
			t.Fatal(err)
		}
		c = command("order-1", id, payload)
		c.Attributes[store.AttributeRequestID] = "req-of-" + id
		if _, err := engine.Do(t.Context(), c, run); (err != nil) != (payload != "p") {
			t.Fatal(err)
		}
	}
	c := command("order-1", "", "")
	id := c.ID(semel.SharePrincipal)
	end()
	show := func(name string) (code int, entries []evidence.OpenEntry) {
		t.Helper()
		code, out, _ := semelWith(t, "", "evidence", "show", "--config", file, "--tenant", "acme", "--json", name)
		if code == ExitOK {
			if err := json.Unmarshal([]byte(out), &entries); err != nil {
				t.Fatal(err)
			}
		}
		return code, entries
	}
	for _, name := range []string{"cmd-first", "order-1", id.Encode()} {
		if _, entries := show(name); len(entries) != 5 { // the execution has two, the three other deliveries one each
			t.Errorf("%s finds %d entries", name, len(entries))
		}
	}
	for name, decision := range map[string]string{"cmd-duplicate": "duplicate_replayed", "cmd-rejected": "conflict_rejected", "req-of-cmd-duplicate": "duplicate_replayed", "req-of-cmd-rejected": "conflict_rejected"} {
		_, entries := show(name)
		var told strings.Builder
		for i := range entries {
			if o := entries[i].Opening; o.PresentedCommandID == name || o.PresentedRequestID == name {
				told.WriteString(entries[i].Leaf.Payload.Decision)
			}
		}
		if len(entries) != 5 || told.String() != decision { // the whole story, of which one entry is the delivery's
			t.Errorf("%s finds %d entries, and %q", name, len(entries), told.String())
		}
	}
	if _, out, _ := semelWith(t, "", "evidence", "show", "--config", file, "--tenant", "acme", "req-of-cmd-rejected"); strings.Count(out, "of the delivery cmd-rejected, req-of-cmd-rejected") != 1 {
		t.Errorf("it isn't told which delivery it was: %s", out)
	}
	if code, _ := show("cmd-none"); code != ExitNotFound {
		t.Errorf("what was never delivered gives exit %d", code)
	}
}

func TestStoreAudit(t *testing.T) {
	file, _, engine, st, end := evidentStore(t)
	run := func(context.Context, semel.Execution) (semel.Result, error) {
		return semel.Result{Data: []byte("paid")}, nil
	}
	for _, key := range []string{"order-1", "order-2", "order-3"} {
		if _, err := engine.Do(t.Context(), command(key, "cmd-"+key, "p"), run); err != nil {
			t.Fatal(err)
		}
	}
	c := command("order-2", "", "")
	rec, err := engine.Lookup(t.Context(), c.ID(semel.SharePrincipal))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := st.Extras().Purge.Purge(t.Context(), []store.Ref{{ID: rec.ID, Revision: rec.Revision}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	end()
	code, out, errs := semelWith(t, "", "store", "audit", "--config", file, "--progress")
	if code != ExitCheck || !regexp.MustCompile(`(?m)^BAD   missing +pay +key order-2 +tenant acme +entry 3 `).MatchString(out) || strings.Contains(out, "order-1") ||
		!strings.Contains(errs, "read 6 entries") || !strings.Contains(out, "of Semel itself (reserved)") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	var found evidence.Audit
	code, out, _ = semelWith(t, "", "store", "audit", "--config", file, "--json")
	if err := json.Unmarshal([]byte(out), &found); err != nil || code != ExitCheck || found.Found != 1 || found.Compared != 2 || found.Records != 2+found.Reasons[evidence.Reserved] {
		t.Errorf("exit %d, %s, %v", code, out, err)
	}
}

// An aborted call needs no purge to run again.
func TestAnAbortedCallRunsAgain(t *testing.T) {
	rec := &semel.Record{ID: semel.ID{Operation: "pay", Key: "k"}, State: semel.Failed, Disposition: semel.DispositionAborted, Attempt: 1}
	for _, by := range []*store.Settled{nil, {By: store.ByOperator, Who: "alice", Reason: "looked"}} {
		rec.Settled = by
		var out strings.Builder
		s := &story{Record: lineOf(rec)}
		s.Record.Verdict = new(verdictOf(rec))
		if err := s.print(&out, &recordSource{}); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); strings.Contains(got, "records purge") || !strings.Contains(got, "the next delivery runs") || strings.Contains(got, "executed") {
			t.Error(got)
		}
	}
}

// A call whose lease is over isn't being executed, as far as anybody knows.
func TestASilentHolderIsCalledSilent(t *testing.T) {
	now := store.InstantOf(time.Now())
	rec := &semel.Record{State: semel.Processing, Attempt: 1, StartedAt: now.Add(-time.Minute), UpdatedAt: now.Add(-40 * time.Second), LeaseUntil: now.Add(-10 * time.Second)}
	if got := verdictOf(rec).Says; !strings.Contains(got, "its holder is silent since "+when(rec.UpdatedAt)) || !strings.Contains(got, "next sweep") {
		t.Errorf("it is %s", got)
	}
	for _, m := range timeline(rec) {
		if strings.Contains(m.what, "may be silent") {
			t.Errorf("the timeline says that %s", m.what)
		}
	}
	rec.LeaseUntil = now.Add(time.Hour)
	if got := verdictOf(rec).Says; !strings.HasPrefix(got, "being executed;") {
		t.Errorf("it is %s", got)
	}
}

// why takes the id that the sender of the first delivery knows.
func TestWhyTakesEveryID(t *testing.T) {
	file, _, engine, _, end := evidentStore(t)
	c := command("webhook:github:72d3162e", "cmd-7", "p")
	c.Attributes[store.AttributeEventID], c.Attributes[store.AttributeRequestID] = "72d3162e", "req-7"
	ans, err := engine.Do(t.Context(), c, func(context.Context, semel.Execution) (semel.Result, error) { return semel.Result{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	id := ans.Record.ID
	end()
	for _, name := range []string{"72d3162e", "req-7", "cmd-7", "webhook:github:72d3162e", id.Encode(), id.String()} {
		if code, out, errs := semelWith(t, "", "why", "--config", file, name); code != ExitOK || !strings.Contains(out, "key webhook:github:72d3162e") {
			t.Errorf("%s: exit %d, %s%s", name, code, out, errs)
		}
	}
	if code, _, errs := semelWith(t, "", "why", "--config", file, "req-none"); code != ExitNotFound || !strings.Contains(errs, "evidence show") {
		t.Errorf("exit %d, %s", code, errs)
	}
}
