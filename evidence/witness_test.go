package evidence_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

func types(all []told) (names []string) {
	for _, a := range all {
		name := string(a.Type)
		if a.Payload.Decision != "" {
			name += " " + a.Payload.Decision
		}
		if a.Payload.State != "" {
			name += " " + a.Payload.State
		}
		names = append(names, name)
	}
	return names
}

func wantTypes(t *testing.T, all []told, want ...string) {
	t.Helper()
	if got := types(all); !slices.Equal(got, want) {
		t.Errorf("the log tells\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestExecutionAndReplayAreToldApart(t *testing.T) {
	clause.Proves(t, "IDS-XII.1", "IDS-XII.2", "IDS-XII.3", "IDS-XII.4")
	r := newRig(t, nil)
	first := call("acme", "order-1", "payload")
	r.do(t, first, "the result")
	again := call("acme", "order-1", "payload")
	again.Attributes = store.Attributes{semel.AttributeCommandID: "cmd-second"}
	r.do(t, again, "another")
	all := r.entries(t)
	wantTypes(t, all, "observation.emitted first_seen", "execution.executed", "observation.emitted duplicate_replayed")
	for i, executed := range []bool{0: true, 2: false} {
		if i == 1 {
			continue
		}
		if got := all[i].Payload.Executed; got == nil || *got != executed {
			t.Errorf("entry %d says executed = %v", i, got)
		}
	}
	if ref := all[1].Payload.OutcomeRef; ref == "" || all[2].Payload.OutcomeRef != ref {
		t.Errorf("the replay refers to %q, the execution to %q", all[2].Payload.OutcomeRef, ref)
	}
	for i, a := range all {
		if o := a.opening; o.CommandID != "cmd-order-1" || o.CorrelationID != "corr-order-1" || o.IdempotencyKey != "order-1" || o.Tenant != "acme" || o.Principal != "alice" || o.Operation != "op" {
			t.Errorf("entry %d is about %+v", i, o)
		}
	}
	if got := all[2].opening.PresentedCommandID; got != "cmd-second" {
		t.Errorf("the id of the second delivery is %q", got)
	}
	rec, err := r.Lookup(context.Background(), semel.ID{Tenant: "acme", Principal: "alice", Operation: "op", Key: "order-1"})
	if err != nil {
		t.Fatal(err)
	}
	if sum := evidence.OutcomeDigest(&rec); all[2].opening.OutcomeSHA256 != hex.EncodeToString(sum[:]) {
		t.Error("the outcome in the opening is not that of the record")
	}
}

func TestCollisionIsEvident(t *testing.T) {
	clause.Proves(t, "IDS-VIII.6", "IDS-XII.3")
	r := newRig(t, nil)
	r.do(t, call("acme", "order-1", "payload"), "the result")
	ans := r.do(t, call("acme", "order-1", "another payload"), "never")
	if ans.Decision != semel.Conflict {
		t.Fatal(ans.Decision)
	}
	all := r.entries(t)
	wantTypes(t, all, "observation.emitted first_seen", "execution.executed", "execution.rejected conflict_rejected")
	p := all[2].Payload
	if p.Reason != evidence.ReasonConflict || p.Fingerprint != all[0].Payload.Fingerprint || p.Presented == "" || p.Presented == p.Fingerprint || *p.Executed {
		t.Errorf("%+v", p)
	}
	if o := all[2].opening; o.PresentedFingerprint != call("", "", "another payload").Fingerprint.String() || o.Fingerprint == o.PresentedFingerprint {
		t.Errorf("%+v", o)
	}
}

func TestLeavesNameNoOne(t *testing.T) {
	r := newRig(t, nil)
	r.do(t, call("acme-tenant", "secret-key", "secret-payload"), "secret-result")
	r.do(t, call("acme-tenant", "secret-key", "secret-payload"), "")
	entries, err := r.store.ReadEvidence(context.Background(), 0, 10)
	if err != nil || len(entries) != 3 {
		t.Fatal(len(entries), err)
	}
	for _, en := range entries {
		for _, secret := range []string{"acme", "secret", "alice", "cmd-", "corr-"} {
			if bytes.Contains(en.Leaf, []byte(secret)) {
				t.Errorf("the leaf has %q: %s", secret, en.Leaf)
			}
		}
		for _, secret := range []string{"secret-payload", "secret-result"} {
			if bytes.Contains(en.Opening, []byte(secret)) {
				t.Errorf("the opening has %q: %s", secret, en.Opening)
			}
		}
	}
}

// TestEveryChange goes through the life of calls with all that can happen to them.
func TestEveryChange(t *testing.T) {
	ctx := context.Background()
	undo := func(context.Context, semel.Execution, semel.Record) (semel.Result, error) { return semel.Result{}, nil }
	r := newRig(t, nil,
		semel.Operation{Name: "op", Evidence: semel.EvidenceDurable, Compensation: "undo", Compensate: undo, Effects: []string{"charge"}},
		semel.Operation{Name: "undo"},
		semel.Operation{Name: "confirmed", Evidence: semel.EvidenceDurable, Confirmation: &semel.ConfirmationPolicy{}},
		semel.Operation{Name: "read", Class: semel.ReadOnly, Evidence: semel.EvidenceDurable},
		semel.Operation{Name: "retried", OnFailure: semel.RetryFailure, Evidence: semel.EvidenceDurable},
		semel.Operation{Name: "fast", Evidence: semel.EvidenceDecisions},
	)
	seen := 0
	news := func() []told {
		all := r.entries(t)
		defer func() { seen = len(all) }()
		return all[seen:]
	}
	t.Run("effects, messages and a compensation", func(t *testing.T) {
		ans, err := r.Begin(ctx, call("acme", "one", "p"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := semel.Effect(ans.Attempt.Context(), ans.Attempt, "charge", func(context.Context, string) (string, error) {
			return "charged", nil
		}); err != nil {
			t.Fatal(err)
		}
		if busy, err := r.Begin(ctx, call("acme", "one", "p")); err != nil || busy.Decision != semel.InFlight {
			t.Fatal(busy, err)
		}
		if err := ans.Attempt.Send(semel.Message{Name: "mail", Destination: "mailer"}); err != nil {
			t.Fatal(err)
		}
		if err := ans.Attempt.Complete(ctx, semel.Result{}); err != nil {
			t.Fatal(err)
		}
		id := semel.ID{Tenant: "acme", Principal: "alice", Operation: "op", Key: "one"}
		rec, err := r.Lookup(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Internal().SettleMessage(ctx, id, rec.Outbox[0].ID, store.MessageFinding{State: store.MessageDelivered}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Compensate(ctx, id, "operator", "customer asked"); err != nil {
			t.Fatal(err)
		}
		all := news()
		wantTypes(t, all,
			"observation.emitted first_seen", "effect.changed started", "effect.changed confirmed", "delivery.answered in_flight",
			"execution.executed", "message.changed delivered", "compensation.changed started", "compensation.changed done")
		if all[1].opening.Item != "charge" || all[5].opening.Item != rec.Outbox[0].ID || all[6].opening.Reason != "customer asked" {
			t.Errorf("%+v", all)
		}
	})
	t.Run("a confirmation", func(t *testing.T) {
		c := call("acme", "two", "p")
		c.Operation = "confirmed"
		asked, err := r.Begin(ctx, c)
		if !errors.Is(err, &semel.Error{Code: semel.CodeConfirmationRequired}) {
			t.Fatal(err)
		}
		wrong := c
		wrong.Confirm = "wrong"
		if _, err := r.Begin(ctx, wrong); err == nil {
			t.Fatal("a wrong token confirms")
		}
		c.Confirm = asked.Challenge.Token
		r.do(t, c, "done")
		all := news()
		wantTypes(t, all, "observation.emitted first_seen", "confirmation.requested", "confirmation.refused",
			"confirmation.consumed", "execution.started", "execution.executed")
		if *all[0].Payload.Executed || !*all[4].Payload.Executed {
			t.Error("the first delivery was not given the execution, the second was")
		}
		entries, err := r.store.ReadEvidence(ctx, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, en := range entries {
			if bytes.Contains(append(en.Leaf, en.Opening...), []byte(asked.Challenge.Token)) {
				t.Error("the token is in the log")
			}
		}
	})
	t.Run("a confirmation by an operator", func(t *testing.T) {
		c := call("acme", "six", "p")
		c.Operation = "confirmed"
		if _, err := r.Begin(ctx, c); !errors.Is(err, &semel.Error{Code: semel.CodeConfirmationRequired}) {
			t.Fatal(err)
		}
		if _, err := r.Confirm(ctx, c.ID(""), 0, "ann", "she called"); err != nil {
			t.Fatal(err)
		}
		r.do(t, c, "done")
		all := news()
		wantTypes(t, all, "observation.emitted first_seen", "confirmation.requested", "confirmation.given",
			"confirmation.consumed", "execution.started", "execution.executed")
		if p, o := all[2].Payload, all[2].opening; p.By != store.ByOperator || p.Change != store.ChangeConfirmed || o.SettledBy != "ann" || o.Reason != "she called" || all[3].Payload.By != "" {
			t.Errorf("%+v", all[2])
		}
	})
	t.Run("failures", func(t *testing.T) {
		c := call("acme", "three", "p")
		c.Operation = "retried"
		if _, err := r.Do(ctx, c, func(context.Context, semel.Execution) (semel.Result, error) {
			return semel.Result{}, semel.Failure(errors.New("no"))
		}); err == nil {
			t.Fatal("it did not fail")
		}
		if _, err := r.Do(ctx, c, func(context.Context, semel.Execution) (semel.Result, error) {
			return semel.Result{}, semel.Rejected("card_declined", errors.New("the card was declined"))
		}); err == nil {
			t.Fatal("it was not rejected")
		}
		all := news()
		wantTypes(t, all, "observation.emitted first_seen", "execution.failed", "execution.started", "execution.rejected")
		if p := all[3].Payload; p.Reason != evidence.ReasonRejected || p.Attempt != 2 {
			t.Errorf("%+v", p)
		}
	})
	t.Run("a purge by an operator", func(t *testing.T) {
		c := call("acme", "purged", "p")
		r.do(t, c, "x")
		id := semel.ID{Tenant: c.Tenant, Principal: c.Principal, Operation: c.Operation, Key: c.Key}
		for { // the next fence would not be higher within the same microsecond
			err := r.Purge(ctx, id, semel.Removal{Reason: "asked to"})
			if err == nil {
				break
			}
			if e, ok := errors.AsType[*semel.Error](err); !ok || e.RetryAfter == 0 {
				t.Fatal(err)
			}
		}
		all := news()
		wantTypes(t, all, "observation.emitted first_seen", "execution.executed", "record.purged")
		if p := all[2].Payload; p.Change != store.ChangePurged || p.OutcomeRef == "" || p.OutcomeRef != all[1].Payload.OutcomeRef || all[2].opening.IdempotencyKey != "purged" {
			t.Errorf("%+v", all[2])
		}
	})
	t.Run("a read that is not recorded", func(t *testing.T) {
		c := call("acme", "four", "p")
		c.Operation = "read"
		r.do(t, c, "x")
		wantTypes(t, news(), "delivery.answered execute")
	})
	t.Run("decisions that nobody waits for are written soon", func(t *testing.T) {
		c := call("acme", "five", "p")
		c.Operation = "fast"
		r.do(t, c, "x")
		r.do(t, c, "x")
		if err := r.log.Close(ctx); err != nil { // which writes them at the latest
			t.Fatal(err)
		}
		wantTypes(t, news(), "observation.emitted first_seen", "execution.executed", "observation.emitted duplicate_replayed")
	})
	checkForm(t, r)
}

// checkForm holds every entry against the schema and against RFC 8785.
func checkForm(t *testing.T, r *rig) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(evidence.Schema))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("evidence.json", doc); err != nil {
		t.Fatal(err)
	}
	leaf, opening := compiler.MustCompile("evidence.json"), compiler.MustCompile("evidence.json#/$defs/opening")
	entries, err := r.store.ReadEvidence(context.Background(), 0, 1000)
	if err != nil || len(entries) == 0 {
		t.Fatal(len(entries), err)
	}
	for _, en := range entries {
		for _, part := range []struct {
			schema *jsonschema.Schema
			text   []byte
		}{{leaf, en.Leaf}, {opening, en.Opening}} {
			var v any
			if err := json.Unmarshal(part.text, &v); err != nil {
				t.Fatalf("%v in %s", err, part.text)
			}
			if err := part.schema.Validate(v); err != nil {
				t.Errorf("%v in %s", err, part.text)
			}
			if c, err := canon.Canonicalize(part.text, canon.Exact); err != nil || !bytes.Equal(c, part.text) {
				t.Errorf("%s is not canonical: %s, %v", part.text, c, err)
			}
		}
	}
	for _, bad := range []string{`{}`, `{"artifact_id":"ev_1"}`, strings.Replace(string(entries[0].Leaf), "first_seen", "second_seen", 1), strings.Replace(string(entries[0].Leaf), `"v":2`, `"v":2,"payload_text":"x"`, 1), strings.Replace(string(entries[0].Leaf), `"v":2`, `"v":3`, 1)} {
		var v any
		if err := json.Unmarshal([]byte(bad), &v); err != nil {
			t.Fatal(err)
		}
		if leaf.Validate(v) == nil {
			t.Errorf("the schema accepts %s", bad)
		}
	}
}

func TestADeliveryThroughAnotherDoorIsEvident(t *testing.T) {
	r := newRig(t, nil)
	first := call("acme", "order-1", "payload")
	first.Door = "http"
	r.do(t, first, "the result")
	other := first
	other.Door = "api"
	if ans := r.do(t, other, "never"); ans.Decision != semel.OtherDoor {
		t.Fatal(ans.Decision)
	}
	if all := r.entries(t); len(all) != 3 || all[2].Payload.Decision != string(semel.OtherDoor) {
		t.Fatalf("%+v", all)
	}
	checkForm(t, r)
}

func TestStrangeNamesAreCanonical(t *testing.T) {
	r := newRig(t, nil)
	c := call("tenant \"quoted\"\\", "key\n\t\x01\u2028é😀\x7f", "p")
	c.Principal = "a\rb\bc\fd</script>"
	r.do(t, c, "x")
	checkForm(t, r)
	if o := r.entries(t)[0].opening; o.IdempotencyKey != c.Key || o.Tenant != c.Tenant || o.Principal != c.Principal {
		t.Errorf("%+v", o)
	}
}

func TestFind(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, nil)
	r.fill(t, 0, 3)
	bare := call("acme", "bare", "p")
	bare.Attributes = nil
	r.do(t, bare, "x")
	r.integrate(t)
	reader := r.reader(t)
	for _, test := range []struct {
		name    string
		subject store.Subject
		want    []uint64
	}{
		{"a command is found by its id", r.log.Name("tenant-1", "cmd-key-1"), []uint64{2, 3}},
		{"in its tenant only", r.log.Name("tenant-2", "cmd-key-1"), nil},
		{"a call without one by its identity", r.log.Subject(semel.ID{Tenant: "acme", Principal: "alice", Operation: "op", Key: "bare"}), []uint64{6, 7}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, err := reader.Find(ctx, test.subject); err != nil || !slices.Equal(got, test.want) {
				t.Errorf("found %v, %v", got, err)
			}
		})
	}
}
