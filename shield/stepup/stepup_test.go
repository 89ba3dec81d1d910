package stepup_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/shield/stepup"
	"github.com/semelhq/semel/store/memstore"
)

const secret = "JBSWY3DPEHPK3PXP"

// bank is a confirmed operation whose confirmations need a code.
func bank(t *testing.T, body func(t *testing.T, e *semel.Engine, v *stepup.TOTP)) {
	synctest.Test(t, func(t *testing.T) {
		v := &stepup.TOTP{Secret: func(_ context.Context, c semel.Call) (string, error) {
			if c.Principal == "nobody" {
				return "", errors.New("no authenticator")
			}
			return secret, nil
		}}
		e, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{
			{Name: "transfer", Confirmation: &semel.ConfirmationPolicy{StepUp: v.Verify, MaxTries: 100}}, stepup.Operation(),
		}})
		if err != nil {
			t.Fatal(err)
		}
		v.Runner = e
		body(t, e, v)
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func code(t *testing.T, at time.Time) string {
	t.Helper()
	c, err := totp.GenerateCode(secret, at)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func transfer(key string) semel.Call {
	return semel.Call{Tenant: "t", Principal: "alice", Operation: "transfer", Key: key}
}

// confirm sends the call twice: for the token, and with it and a code.
func confirm(t *testing.T, e *semel.Engine, c semel.Call, code string) error {
	t.Helper()
	ans, err := e.Begin(t.Context(), c)
	if !errors.Is(err, &semel.Error{Code: semel.CodeConfirmationRequired}) || !ans.Challenge.StepUp {
		t.Fatalf("got %+v, %v", ans, err)
	}
	c.Confirm, c.StepUp = ans.Challenge.Token, code
	ans, err = e.Begin(t.Context(), c)
	if err == nil && ans.Attempt == nil {
		t.Fatalf("got %+v", ans)
	}
	return err
}

func TestACodeConfirmsOneCall(t *testing.T) {
	clause.Proves(t, "IDS-XIII.6")
	bank(t, func(t *testing.T, e *semel.Engine, _ *stepup.TOTP) {
		now := time.Now()
		if err := confirm(t, e, transfer("1"), code(t, now)); err != nil {
			t.Fatal(err)
		}
		for _, at := range []time.Time{now, now.Add(-60 * time.Second), now.Add(61 * time.Second)} { // used, too old, of the future
			if err := confirm(t, e, transfer("2"), code(t, at)); !errors.Is(err, &semel.Error{Code: semel.CodeConfirmationRefused}) {
				t.Errorf("the code of %v: %v", at, err)
			}
		}
		for _, wrong := range []string{"", "12345", "1234567", "abcdef"} {
			if err := confirm(t, e, transfer("2"), wrong); err == nil {
				t.Errorf("%q was taken", wrong)
			}
		}
		bob := transfer("1")
		bob.Principal = "bob" // who has a code of his own, as it were
		if err := confirm(t, e, bob, code(t, now)); err != nil {
			t.Error(err)
		}
		nobody := transfer("1")
		nobody.Principal = "nobody"
		if err := confirm(t, e, nobody, code(t, now)); err == nil {
			t.Error("a code was taken of who has no authenticator")
		}
		<-time.After(30 * time.Second)
		if err := confirm(t, e, transfer("2"), code(t, time.Now())); err != nil {
			t.Error(err)
		}
	})
}

func TestACodeIsTakenOnceAmongMany(t *testing.T) {
	bank(t, func(t *testing.T, _ *semel.Engine, v *stepup.TOTP) {
		c := transfer("1")
		c.StepUp = code(t, time.Now())
		var taken atomic.Int32
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if v.Verify(t.Context(), c) == nil {
					taken.Add(1)
				}
			})
		}
		wg.Wait()
		if taken.Load() != 1 {
			t.Errorf("taken %d times", taken.Load())
		}
	})
}

func TestWithoutAStoreNoCodeIsTaken(t *testing.T) {
	bank(t, func(t *testing.T, e *semel.Engine, v *stepup.TOTP) {
		c := transfer("1")
		c.StepUp = code(t, time.Now())
		v.Runner = nil
		if v.Verify(t.Context(), c) == nil {
			t.Error("taken without a Runner")
		}
		v.Runner = e
		if err := e.Internal().Store().Close(); err != nil {
			t.Fatal(err)
		}
		if v.Verify(t.Context(), c) == nil {
			t.Error("taken without a store")
		}
	})
}
