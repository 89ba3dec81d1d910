package bench

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/activitypub"
	"github.com/semelhq/semel/internal/rig/turns"
	"github.com/semelhq/semel/store"
)

var budget = flag.Duration("budget", activitypub.DefaultBudget, "after how long the inbox answers with 503")

// limit is how long it may take to tell a duplicate (VUL-03-002).
const limit = 100 * time.Millisecond

// BenchmarkInbox measures how long senders wait for the answer of an ActivityPub inbox, over
// HTTP on connections that are kept. What they wait for includes the processors that they
// share with the inbox. The store has the records of activities that were taken and handled.
// Activities are not signed.
func BenchmarkInbox(b *testing.B) {
	for _, kind := range kinds {
		b.Run(kind.name, func(b *testing.B) {
			p := kind.place(b)
			in := newInbox(b, p.store(b, "inbox"))
			in.fill(b)
			if p.dir != "" {
				settle(b, p.dir+"/inbox")
			}
			addr := serve(b, in.inbox, true)
			for _, load := range []struct {
				name  string
				again bool
				step  func(in *inbox, conns []*conn) step
				width int // connections of a caller
			}{
				{"duplicates", true, (*inbox).duplicate, 1},
				{"first deliveries", false, (*inbox).first, 1},
				{"flood", true, (*inbox).flood, min(copies, *callers)},
			} {
				b.Run(load.name, func(b *testing.B) {
					in.refused.Store(0)
					callers := max(*callers/load.width, 1)
					got := turns.Compare(b, turns.Load{Name: "deliveries", Callers: callers, Step: load.step(in, dial(b, addr, callers*load.width))})
					refused := in.refused.Load()
					b.ReportMetric(float64(refused), "refused")
					if turns.Long() && (refused > 0 || load.again && got[0].P99 > limit) {
						b.Errorf("%d deliveries were not answered with 202; the p99 is %v and may be %v", refused, got[0].P99, limit)
					}
				})
			}
		})
	}
}

// inbox is the inbox of one actor.
type inbox struct {
	inbox   *activitypub.Inbox
	engine  *semel.Engine
	handled sync.WaitGroup
	failed  atomic.Pointer[error]
	refused atomic.Int64 // deliveries that got another status than 202
}

func newInbox(b *testing.B, st semel.Store) *inbox {
	b.Helper()
	// An answer waits for its line in the log.
	write := door.Log(slog.New(slog.NewJSONHandler(io.Discard, nil)), slog.LevelInfo)
	in := &inbox{engine: engineOn(b, st, &semel.Options{Events: write})}
	in.inbox = in.within(b, *budget)
	return in
}

// within makes the inbox with a budget.
func (in *inbox) within(b *testing.B, budget time.Duration) *activitypub.Inbox {
	b.Helper()
	made, err := activitypub.New(in.engine, activitypub.Options{
		Tenant: "bench", Actors: "https://here.example/actors/{actor}", Budget: budget,
		Exists:   func(_ context.Context, actor string) (bool, error) { return actor == "alice", nil },
		Policies: activitypub.Policies{{Host: "*", Unsigned: true}},
		Handle:   func(context.Context, *activitypub.Activity) error { return nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	return made
}

const path, mediaType = "/actors/alice/inbox/", "application/activity+json"

// fill delivers activities and has them handled.
func (in *inbox) fill(b *testing.B) {
	b.Helper()
	in.engine.Internal().SetDispatcher(func(rec *semel.Record) {
		in.handled.Go(func() {
			for _, m := range rec.Outbox {
				if _, err := in.engine.Internal().SettleMessage(b.Context(), rec.ID, m.ID, store.MessageFinding{State: store.MessageDelivered}); err != nil {
					in.failed.Store(&err)
				}
			}
		})
	})
	patient := in.within(b, time.Minute)
	group, ctx := errgroup.WithContext(b.Context())
	for w := range fillers {
		group.Go(func() error {
			for i := w; i < *records; i += fillers {
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(activity(known(i))))
				r.Header.Set("Content-Type", mediaType)
				rec := httptest.NewRecorder()
				patient.ServeHTTP(rec, r)
				if rec.Code != http.StatusAccepted {
					return fmt.Errorf("an activity to fill the store with got %d", rec.Code)
				}
			}
			return nil
		})
	}
	err := group.Wait()
	in.handled.Wait()
	if failed := in.failed.Load(); failed != nil {
		err = errors.Join(err, *failed)
	}
	if err != nil {
		b.Fatal(err)
	}
	in.engine.Internal().SetDispatcher(func(*semel.Record) {}) // what comes now stays in the outbox
}

// activity is one of about the size that the flag says, always the same for its id. Its content
// is made of hexadecimal digits, which a store can compress about as well as text.
func activity(id string) []byte {
	const start = "https://there.example/activities/"
	a := fmt.Appendf(nil, `{"@context":"https://www.w3.org/ns/activitystreams","type":"Offer","id":"%[1]s%[2]s",`+
		`"actor":"https://there.example/users/bob","to":"https://here.example/actors/alice","object":{"type":"VulnerabilityReport",`+
		`"id":"%[1]s%[2]s/report","attributedTo":"https://there.example/users/bob","content":"`, start, id)
	var seed [32]byte
	copy(seed[:], id[max(len(id)-len(seed), 0):])
	for content := rand.NewChaCha8(seed); len(a) < *size-3; {
		a = fmt.Appendf(a, "%016x", content.Uint64())
	}
	return append(a, `"}}`...)
}

// deliver sends an activity, and reports whether the inbox says that it is new. ok is false
// if the answer isn't 202.
func (in *inbox) deliver(c *conn, id string) (fresh, ok bool, err error) {
	status, answer, err := c.post(path+" HTTP/1.1\r\nHost: here.example\r\nContent-Type: "+mediaType+"\r\n", activity(id))
	switch {
	case err != nil:
		return false, false, err
	case status != http.StatusAccepted:
		in.refused.Add(1)
		return false, false, nil
	case strings.Contains(string(answer), `"message":"queued`):
		return true, true, nil
	case strings.Contains(string(answer), `"message":"already`):
		return false, true, nil
	}
	return false, false, fmt.Errorf("the inbox took %s for something else: %s", id, answer)
}

// duplicate delivers a random activity that is in the store.
func (in *inbox) duplicate(conns []*conn) step {
	return func(_ context.Context, c *turns.Caller) error {
		id := known(c.Rand.IntN(*records))
		fresh, _, err := in.deliver(conns[c.Number], id)
		if fresh {
			err = fmt.Errorf("%s is there, and was taken", id)
		}
		return err
	}
}

// first delivers a new activity.
func (in *inbox) first(conns []*conn) step {
	return func(_ context.Context, c *turns.Caller) error {
		id := c.Key()
		fresh, ok, err := in.deliver(conns[c.Number], id)
		if ok && !fresh {
			err = fmt.Errorf("%s is new, and was not taken", id)
		}
		return err
	}
}

// copies is how many senders deliver each activity of a flood at once.
const copies = 50

// flood delivers a new activity on several connections at once: one is told that it is new,
// unless that one was refused.
func (in *inbox) flood(conns []*conn) step {
	width := min(copies, *callers)
	return func(_ context.Context, c *turns.Caller) error {
		id := c.Key()
		var group errgroup.Group
		var mu sync.Mutex
		taken, unknown := 0, 0
		for _, conn := range conns[c.Number*width:][:width] {
			group.Go(func() error {
				start := time.Now()
				fresh, ok, err := in.deliver(conn, id)
				mu.Lock()
				defer mu.Unlock()
				c.Took(time.Since(start))
				if fresh {
					taken++
				}
				if !ok {
					unknown++
				}
				return err
			})
		}
		err := group.Wait()
		if err == nil && (taken > 1 || taken == 0 && unknown == 0) {
			err = fmt.Errorf("%s was taken %d times", id, taken)
		}
		return err
	}
}
