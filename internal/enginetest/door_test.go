package enginetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

func callBy(door, key string) semel.Call {
	c := call(key)
	c.Door = door
	return c
}

// Whatever became of a call, a delivery through another door gets nothing of it and
// executes nothing, until the record expires.
func TestADoorGivesNothingOfAnother(t *testing.T) {
	ends := map[string]func(t *testing.T, a *semel.Attempt){
		"in flight": func(*testing.T, *semel.Attempt) {},
		"completed": func(t *testing.T, a *semel.Attempt) { must(t, a.Complete(t.Context(), data("secret"))) },
		"rejected": func(t *testing.T, a *semel.Attempt) {
			must(t, a.Reject(t.Context(), store.Failure{Message: "secret"}, semel.Result{}))
		},
		"failed, and to be tried again": func(t *testing.T, a *semel.Attempt) {
			must(t, a.Fail(t.Context(), store.Failure{Message: "secret"}, data("secret")))
		},
		"aborted": func(t *testing.T, a *semel.Attempt) { must(t, a.Abort(t.Context(), store.Failure{})) },
		"held":    func(t *testing.T, a *semel.Attempt) { must(t, a.Hold(t.Context(), "secret")) },
	}
	for name, end := range ends {
		for _, doors := range [][2]string{{"http", "api"}, {"", "api"}, {"http", ""}} {
			t.Run(name+", by "+doors[0]+" and then by "+doors[1], func(t *testing.T) {
				inBubble(t, semel.Operation{OnFailure: semel.RetryFailure, MaxWait: time.Minute, Window: time.Hour, Lease: time.Minute}, func(t *testing.T, r *rig) {
					a := begin(t, r.Engine, callBy(doors[0], "k"))
					if got := a.Record().Door; got != doors[0] {
						t.Fatalf("the record is of the door %q", got)
					}
					end(t, a)
					for _, payloadOf := range []string{"x", "other"} {
						c := callBy(doors[1], "k")
						c.Fingerprint, c.Wait, c.Holder = payload(payloadOf), time.Minute, "node"
						ans := decides(t, r.Engine, c, semel.OtherDoor)
						if rec := *ans.Record; ans.Attempt != nil || rec.State != 0 || rec.Result.Data != nil || rec.Failure != nil || rec.Held || rec.Fence != 0 {
							t.Errorf("the answer tells of the call: %+v", ans)
						}
						wantCode(t, ans.Err(), semel.CodeOtherDoor)
						peeked, err := r.Internal().Peek(t.Context(), c)
						if err != nil || peeked.Decision != semel.OtherDoor || peeked.Record.State != 0 {
							t.Errorf("a look gets %+v, %v", peeked, err)
						}
						if again, err := r.Internal().Reclaim(t.Context(), c); again != nil || err != nil {
							t.Errorf("the claim is given to another door: %v, %v", again, err)
						}
					}
				})
			})
		}
	}
	t.Run("a record that has expired is nobody's", func(t *testing.T) {
		inBubble(t, semel.Operation{Window: time.Hour}, func(t *testing.T, r *rig) {
			must(t, begin(t, r.Engine, callBy("http", "k")).Complete(t.Context(), data("old")))
			pass(time.Hour + time.Second)
			if a := begin(t, r.Engine, callBy("api", "k")); a.Record().Door != "api" {
				t.Errorf("the new call is of the door %q", a.Record().Door)
			}
		})
	})
	t.Run("a name that is too long is refused", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			_, err := r.Begin(t.Context(), callBy("a door with a name of 33 letters.", "k"))
			wantCode(t, err, semel.CodeInvalidCall)
		})
	})
}

// Who may not see the answer to a shared key may not take the key either.
func TestASharedKeyIsTakenByThoseWhoMay(t *testing.T) {
	var asked []semel.Record
	op := semel.Operation{Share: semel.ShareTenant, OnFailure: semel.RetryFailure, Authorize: func(_ context.Context, c semel.Call, rec semel.Record) error {
		asked = append(asked, rec)
		if c.Principal == "stranger" {
			return errors.New("not for strangers")
		}
		return nil
	}}
	inBubble(t, op, func(t *testing.T, r *rig) {
		stranger := call("k")
		stranger.Principal = "stranger"
		ans, err := r.Begin(t.Context(), stranger)
		if wantCode(t, err, semel.CodeForbidden); ans.Attempt != nil || ans.Record != nil {
			t.Fatalf("a stranger gets %+v", ans)
		}
		if len(asked) != 1 || asked[0].ID.Key != "k" || asked[0].Principal != "stranger" || asked[0].State != semel.Processing {
			t.Errorf("Authorize was asked about %+v", asked)
		}
		if _, err := r.Lookup(t.Context(), asked[0].ID); !errors.Is(err, semel.ErrNotFound) {
			t.Errorf("something is stored: %v", err)
		}
		a := begin(t, r.Engine, call("k"))
		must(t, a.Fail(t.Context(), store.Failure{}, semel.Result{}))
		_, err = r.Begin(t.Context(), stranger) // nor a further attempt
		wantCode(t, err, semel.CodeForbidden)
		must(t, begin(t, r.Engine, call("k")).Complete(t.Context(), data("answer")))
		_, err = r.Begin(t.Context(), stranger)
		wantCode(t, err, semel.CodeForbidden)
		decides(t, r.Engine, call("k"), semel.Replay)
	})
}

// Who may not begin a call may get the outcome of another's, if the record lets them.
func TestADuplicateIsJudgedByWhatIsStored(t *testing.T) {
	op := semel.Operation{Share: semel.ShareTenant, Authorize: func(_ context.Context, _ semel.Call, rec semel.Record) error {
		if rec.Principal != "alice" {
			return errors.New("only of what alice did")
		}
		return nil
	}}
	inBubble(t, op, func(t *testing.T, r *rig) {
		by := func(who string) semel.Call {
			c := call("k")
			c.Principal = who
			return c
		}
		_, err := r.Begin(t.Context(), by("bob"))
		wantCode(t, err, semel.CodeForbidden)
		a := begin(t, r.Engine, by("alice"))
		decides(t, r.Engine, by("bob"), semel.InFlight)
		must(t, a.Complete(t.Context(), data("answer")))
		decides(t, r.Engine, by("bob"), semel.Replay)
	})
}
