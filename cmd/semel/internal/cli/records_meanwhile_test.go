package cli

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
)

// hesitating is a person who says yes after something else has happened.
type hesitating struct {
	meanwhile func()
	yes       io.Reader
}

func (h *hesitating) Read(b []byte) (int, error) {
	if h.meanwhile != nil {
		h.meanwhile()
	}
	h.meanwhile = nil
	return h.yes.Read(b)
}

// TestAYesIsAboutWhatWasShown: whoever was shown an attempt changes no later one.
func TestAYesIsAboutWhatWasShown(t *testing.T) {
	call := semel.Call{Tenant: "acme", Principal: "shop", Operation: "charge", Key: "held"}
	for name, args := range map[string][]string{
		"settle":     append([]string{"settle", "--outcome", "aborted"}, named("held")...),
		"settle all": {"settle", "--all", "--outcome", "aborted", "key:held"},
		"release":    append([]string{"release"}, named("held")...),
		"purge":      append([]string{"purge"}, named("done")...),
		"confirm":    {"confirm", semel.ID{Tenant: "acme", Principal: "shop", Operation: "pay", Key: "k"}.Encode()},
	} {
		t.Run(name, func(t *testing.T) {
			st := memstore.New()
			e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "charge"}, {Name: "mail"}, {Name: "pay", Confirmation: &semel.ConfirmationPolicy{}}}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Close(t.Context()) })
			populate(t, e)
			pay := semel.Call{Tenant: "acme", Principal: "shop", Operation: "pay", Key: "k"}
			asked := func(amount string) {
				pay.Fingerprint = semel.FingerprintOf(semel.SchemeRaw, []byte(amount))
				if _, err := e.Begin(t.Context(), pay); !errors.Is(err, &semel.Error{Code: semel.CodeConfirmationRequired}) {
					t.Error(err)
				}
			}
			asked("10")
			again := func(c semel.Call) *semel.Attempt {
				ans, err := e.Begin(t.Context(), c)
				if err != nil || ans.Attempt == nil {
					t.Fatal(ans.Decision, err)
				}
				return ans.Attempt
			}
			var before int
			person := &hesitating{yes: strings.NewReader("yes\n"), meanwhile: func() {
				if _, err := e.Settle(t.Context(), call.ID(""), semel.Settlement{Outcome: semel.DispositionAborted}, "ben was faster"); err != nil {
					t.Error(err)
				}
				err := again(call).Hold(t.Context(), "charged, and no answer")
				st.Advance(10 * time.Minute)
				asked("10000")
				done := call
				done.Key = "done"
				err = errors.Join(err, e.Purge(t.Context(), done.ID(""), semel.Removal{}), again(done).Complete(t.Context(), semel.Result{}))
				if err != nil {
					t.Error(err)
				}
				before = st.Len()
			}}
			errs, err := inProcess(t, t.Context(), e, person, io.Discard, append(args, "--reason", "r")...)
			if !errors.Is(err, &semel.Error{Code: semel.CodeIllegalTransition}) || !strings.Contains(errs+err.Error(), "a later attempt than the one you saw") {
				t.Errorf("%v, %s", err, errs)
			}
			if rec, err := e.Lookup(t.Context(), call.ID("")); err != nil || !rec.Held || rec.Attempt != 2 || st.Len() != before {
				t.Errorf("%+v, %v", rec, err)
			}
		})
	}
}
