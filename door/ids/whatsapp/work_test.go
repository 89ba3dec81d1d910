package whatsapp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// story is what the log has of a call, in the order in which it happened.
func (r *rig) story(id semel.ID, commandID string) (lines []string) {
	r.t.Helper()
	ctx := context.Background()
	if err := errors.Join(r.log.Close(ctx), r.log.Integrate(ctx)); err != nil {
		r.t.Fatal(err)
	}
	reader, err := r.log.Reader(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	numbers, err := reader.Find(ctx, subjectOf(r.log, id, commandID))
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
		line := strings.TrimSpace(string(leaf.Type) + " " + leaf.Payload.Decision)
		if leaf.Payload.Executed != nil && *leaf.Payload.Executed {
			line += " executed"
		}
		lines = append(lines, line)
	}
	return lines
}

func TestSameCommandInOtherMessages(t *testing.T) {
	clause.Proves(t, "IDS-V.1", "IDS-IX.1", "IDS-IX.4", "IDS-XII.1", "IDS-XII.2", "IDS-XII.3")
	r := newRig(t)
	for i := range 4 {
		if got := r.post(deliveryOf(phone, text(fmt.Sprintf("wamid.%d", i), alice, "refund A-1 5"))); got != http.StatusOK {
			t.Fatalf("status %d", got)
		}
	}
	if errs := r.work(); len(errs) > 0 {
		t.Fatal(errs)
	}
	if r.refunded("A-1") != 1 {
		t.Errorf("refunded %d times", r.refunded("A-1"))
	}
	for i, got := range r.replies {
		want := fmt.Sprintf("wamid.%d executed duplicate_replayed Refunded A-1.", i)
		if i == 0 {
			want = "wamid.0 executed first_seen Refunded A-1."
		}
		if got != want {
			t.Errorf("reply %q, want %q", got, want)
		}
	}
}

func TestWorkIsRepeated(t *testing.T) {
	clause.Proves(t, "IDS-V.1", "IDS-IX.1", "IDS-IX.4")
	r := newRig(t)
	r.post(deliveryOf(phone, text("wamid.1", alice, "refund A-1 5")))
	payload := r.due[0]
	r.mapErr = errors.New("the mapper is away")
	if err := r.in.Work(t.Context(), payload); !errors.Is(err, r.mapErr) {
		t.Fatalf("%v", err)
	}
	r.mapErr = nil
	for range 3 { // as after crashes between the end of the work and the note of it
		if err := r.in.Work(t.Context(), payload); err != nil {
			t.Fatal(err)
		}
	}
	if r.refunded("A-1") != 1 || len(r.replies) != 3 || strings.Fields(r.replies[0])[1] != strings.Fields(r.replies[2])[1] {
		t.Errorf("refunded %d times, %q", r.refunded("A-1"), r.replies)
	}
	t.Run("a mapper that changes its mind is a conflict", func(t *testing.T) {
		r.another = true
		if err := r.in.Work(t.Context(), payload); err != nil {
			t.Fatal(err)
		}
		if last := r.replies[len(r.replies)-1]; last != "wamid.1 rejected conflict_rejected " || r.refunded("A-1") != 1 {
			t.Errorf("%q, refunded %d times", last, r.refunded("A-1"))
		}
	})
}

func TestWorkWhileItRuns(t *testing.T) {
	clause.Proves(t, "IDS-IX.2", "IDS-IX.3")
	r := newRig(t)
	r.hold, r.arrived = make(chan struct{}), make(chan struct{}, 2)
	r.post(deliveryOf(phone, text("wamid.1", alice, "refund A-1 5")))
	r.post(deliveryOf(phone, text("wamid.2", alice, "refund A-1 5")))
	due := r.due
	first := make(chan error)
	go func() { first <- r.in.Work(context.Background(), due[0]) }()
	<-r.arrived
	err := r.in.Work(t.Context(), due[1])
	if later, ok := errors.AsType[*Later](err); !ok || later.After <= 0 {
		t.Errorf("the one that does not run it: %v", err)
	}
	if len(r.replies) > 0 {
		t.Errorf("somebody was answered: %v", r.replies)
	}
	close(r.hold)
	if err := errors.Join(<-first, r.in.Work(t.Context(), due[1])); err != nil || r.refunded("A-1") != 1 || len(r.replies) != 2 {
		t.Errorf("%v, refunded %d times, %q", err, r.refunded("A-1"), r.replies)
	}
}

func TestConfirmation(t *testing.T) {
	clause.Proves(t, "IDS-X.1", "IDS-X.3", "IDS-XIII.6")
	r := newRig(t)
	press := func(id, from, button string) string {
		return fmt.Sprintf(`{"from":%q,"id":%q,"timestamp":"1767323050","type":"interactive","interactive":{"type":"button_reply","button_reply":{"id":%q,"title":"cancel A-1"}}}`, from, id, button)
	}
	deliver := func(message string) {
		t.Helper()
		if got := r.post(deliveryOf(phone, message)); got != http.StatusOK {
			t.Fatalf("status %d", got)
		}
		if errs := r.work(); len(errs) > 0 {
			t.Fatal(errs)
		}
	}
	deliver(text("wamid.1", alice, "cancel A-1"))
	if len(r.button) < 44 || len(r.button) > 256 || r.refunded("A-1") != 0 {
		t.Fatalf("button %q, executed %d times", r.button, r.refunded("A-1"))
	}
	deliver(press("wamid.2", alice, r.button[:len(r.button)-1]))
	deliver(press("wamid.3", "351910000008", r.button)) // somebody else's, of whose command it is none
	if r.refunded("A-1") != 0 {
		t.Fatal("it was executed without a confirmation")
	}
	for _, id := range []string{"wamid.4", "wamid.4", "wamid.5"} {
		deliver(press(id, alice, r.button))
	}
	deliver(text("wamid.6", alice, "cancel A-1"))
	want := []string{
		"wamid.1 confirmation_required  ", "wamid.2 refused", "wamid.3 refused",
		"wamid.4 executed first_seen Refunded A-1.", "wamid.5 executed duplicate_replayed Refunded A-1.", "wamid.6 executed duplicate_replayed Refunded A-1.",
	}
	if r.refunded("A-1") != 1 || !slices.Equal(r.replies, want) {
		t.Errorf("executed %d times, %q", r.refunded("A-1"), r.replies)
	}
}

func TestMapperOverHTTP(t *testing.T) {
	answer := func(w http.ResponseWriter, _ *http.Request) {}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r) }))
	defer srv.Close()
	h := &HTTPMapper{URL: srv.URL, Header: http.Header{"Authorization": {"Bearer x"}}}
	m := &Message{TenantID: "acme", From: alice, ID: "wamid.1", Text: "refund A-1 5"}
	t.Run("it is asked and answers with an envelope", func(t *testing.T) {
		answer = func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.Header.Get("Authorization") != "Bearer x" || !strings.Contains(string(body), `"text":"refund A-1 5"`) {
				w.WriteHeader(http.StatusTeapot)
				return
			}
			_, _ = io.WriteString(w, `{"intent":{"entity":"order","action":"refund","target":"A-1"},"args":{"amount":5}}`)
		}
		c, err := h.Map(t.Context(), m)
		if err != nil || c.TenantID != "acme" || c.ActorID != alice || c.Intent.Name() != "order.refund" {
			t.Errorf("%+v, %v", c, err)
		}
	})
	for status, is := range map[int]func(error) bool{
		http.StatusNoContent:           func(err error) bool { return errors.Is(err, ErrNoCommand) },
		http.StatusUnprocessableEntity: refused,
		http.StatusServiceUnavailable:  func(err error) bool { return err != nil && !refused(err) && !errors.Is(err, ErrNoCommand) },
		http.StatusFound:               func(err error) bool { return err != nil && !refused(err) },
	} {
		t.Run(fmt.Sprintf("status %d", status), func(t *testing.T) {
			answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
			if _, err := h.Map(t.Context(), m); !is(err) {
				t.Errorf("%v", err)
			}
		})
	}
	for _, body := range []string{``, `[]`, `{"intent":{"entity":"order","action":"refund"},"tenant_id":"a","tenant_id":"b"}`, `{"intent":7}`, `{"what":1}`} {
		t.Run("it is refused: "+body, func(t *testing.T) {
			answer = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
			if _, err := h.Map(t.Context(), m); !refused(err) {
				t.Errorf("%v", err)
			}
		})
	}
}

func refused(err error) bool {
	_, ok := errors.AsType[*Refusal](err)
	return ok
}

func TestMapperMayNotNameAnother(t *testing.T) {
	m := &Message{TenantID: "acme", From: alice, ID: "wamid.1", PhoneNumberID: phone}
	for _, c := range []ids.Command{{TenantID: "other"}, {ActorID: "other"}} {
		if err := bind(&c, m); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	c := ids.Command{Trace: ids.Trace{ids.TraceMessageID: "another", "span": "7"}}
	if err := bind(&c, m); err != nil || c.Trace[ids.TraceMessageID] != "wamid.1" || c.Trace["span"] != "7" || c.ActorID != alice {
		t.Errorf("%+v, %v", c, err)
	}
}

func subjectOf(log *evidence.Log, id semel.ID, commandID string) store.Subject {
	if commandID != "" {
		return log.Name(id.Tenant, commandID)
	}
	return log.Subject(id)
}
