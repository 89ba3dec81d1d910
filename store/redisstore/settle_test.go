package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/semelhq/semel/internal/gather"
	"github.com/semelhq/semel/store"
)

// emptyWrite is a claim of nothing.
func emptyWrite() *write { return new(write) }

// fakeServer carries out runs as scriptWrite does, behind a network that loses, holds
// back, cuts off, doubles and mixes up answers. It remembers what it did.
type fakeServer struct {
	mu      sync.Mutex
	rng     *rand.Rand
	sends   int
	stored  map[string]string // key to value
	did     map[*write]any    // made: true; what was there; or why it was refused
	answers [][]any           // all that it has given
}

// send sends a batch and settles it with what arrives.
func (f *fakeServer) send(batch []*write) {
	f.mu.Lock()
	f.sends++
	token := strconv.Itoa(f.sends)
	reaches, delay := f.rng.IntN(10) > 0, time.Duration(f.rng.IntN(30))*time.Millisecond
	f.mu.Unlock()
	if !reaches {
		settle(batch, token, nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")})
		return
	}
	<-time.After(delay / 2)
	f.mu.Lock()
	own := f.carryOut(token, batch)
	f.mu.Unlock()
	<-time.After(delay / 2)
	f.mu.Lock()
	arrives, err := f.mixUp(own)
	f.mu.Unlock()
	settle(batch, token, arrives, err)
}

// carryOut makes writes.
func (f *fakeServer) carryOut(token string, batch []*write) []any {
	answer := []any{token, int64(0)}
	made := int64(0)
	for i, w := range batch {
		if f.did[w] != nil {
			panic("a write was sent again")
		}
		there, exists := f.stored[w.key]
		var instead any
		switch luck := f.rng.IntN(20); {
		case luck == 0:
			instead = errors.New("OOM command not allowed")
		case w.claims() && exists, exists && there != w.expect:
			instead = there
		case !w.claims() && !exists:
		case luck == 1:
			instead = errors.New(tooLate)
		default:
			f.stored[w.key], f.did[w] = w.value, true
			made++
			continue
		}
		answer = append(answer, int64(i+1), instead)
		if f.did[w] = instead; instead == nil {
			f.did[w] = ""
		}
	}
	answer[1] = made
	f.answers = append(f.answers, answer)
	return slices.Clone(answer)
}

// mixUp is what arrives instead of an answer.
func (f *fakeServer) mixUp(own []any) ([]any, error) {
	pairs := len(own)/2 - 1
	pair := func() int {
		if pairs == 0 {
			return len(own) // none
		}
		return 2 + 2*f.rng.IntN(pairs)
	}
	switch f.rng.IntN(20) {
	case 0:
		return nil, errors.New("i/o timeout")
	case 1, 2, 3, 4: // of any call, also of one that nobody waits for any more
		return slices.Clone(f.answers[f.rng.IntN(len(f.answers))]), nil
	case 5:
		return own[:f.rng.IntN(len(own))], nil
	case 6: // a part is missing
		at := pair()
		return slices.Delete(own, at, min(at+2, len(own))), nil
	case 7: // or is there twice
		at := pair()
		return append(own, own[at:min(at+2, len(own))]...), nil
	case 8: // in the place of another
		to, from := pair(), pair()
		copy(own[to:], own[from:min(from+2, len(own))])
		return own, nil
	case 9: // the order does not matter
		a, b := pair(), pair()
		if pairs > 0 {
			own[a], own[a+1], own[b], own[b+1] = own[b], own[b+1], own[a], own[a+1]
		}
		return own, nil
	default:
		return own, nil
	}
}

// Whatever arrives instead of an answer: each write is settled once; one that is said to
// be made was, and one that is said not to be was not and never is.
func TestNoAnswerIsBelievedThatIsNotItsOwn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		callers := rapid.IntRange(1, 60).Draw(rt, "callers")
		rapid.SyncTest(rt, func(rt *rapid.T) {
			f := &fakeServer{rng: rand.New(rand.NewPCG(seed, 0)), stored: map[string]string{}, did: map[*write]any{}}
			var work sync.WaitGroup
			q := &gather.Queue[*write]{
				Send: f.send, Work: &work, Room: gather.NewRoom(),
				Workers: workers, MaxBatch: maxBatch, MaxBytes: maxBatchBytes,
			}
			type told struct {
				w   *write
				err error
			}
			var mu sync.Mutex
			var all []told
			var wg sync.WaitGroup
			for c := range callers {
				rng := rand.New(rand.NewPCG(seed, uint64(c+1)))
				wg.Go(func() {
					expect := ""
					for i := range 10 {
						w := emptyWrite()
						w.key, w.expect, w.value = fmt.Sprint(rng.IntN(callers)), expect, fmt.Sprint(c, ".", i)
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(60))*time.Millisecond)
						err := q.Do(ctx, w)
						if errors.Is(err, gather.ErrNotSent) {
							err = notApplied(err)
						} else if err == nil {
							err = w.err
						}
						cancel()
						if expect = ""; err == nil && !w.made {
							expect = w.there // and to follow that
						}
						mu.Lock()
						all = append(all, told{w, err})
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			work.Wait()
			unknown := 0
			for _, to := range all {
				did := f.did[to.w]
				switch {
				case errors.Is(to.err, store.ErrTooLate):
					if why, ok := did.(error); !ok || why.Error() != tooLate {
						rt.Fatalf("%q was refused as late, and the server says %v", to.w.value, did)
					}
				case errors.Is(to.err, store.ErrNotApplied):
					if did == true {
						rt.Fatalf("%q was made, and is said not to be: %v", to.w.value, to.err)
					}
				case to.err != nil:
					unknown++
				case to.w.made && did != true:
					rt.Fatalf("%q is said to be made, and the server says %v", to.w.value, did)
				case !to.w.made && did != any(to.w.there):
					rt.Fatalf("%q is said to have met %q, and the server says %v", to.w.value, to.w.there, did)
				}
			}
			if callers > 20 && (unknown == 0 || unknown == len(all)) {
				rt.Fatalf("%d of %d results are unknown, so nothing is proved", unknown, len(all))
			}
			if waiting, running := q.Len(); waiting+running > 0 {
				rt.Fatalf("afterwards %d wait, and %d run", waiting, running)
			}
		})
	})
}

// Silence is never a yes: an answer that names too few, or another number of writes than
// were sent, says nothing.
func TestAnAnswerAccountsForEveryWrite(t *testing.T) {
	there := func(n int64) []any { return []any{n, "there"} }
	for name, answer := range map[string][]any{
		"none":                      nil,
		"only the token":            {"t"},
		"no token":                  {"x", int64(3)},
		"fewer than were sent":      {"t", int64(2)},
		"more than were sent":       {"t", int64(4)},
		"those of a larger run":     append([]any{"t", int64(3)}, there(1)...),
		"one that was not sent":     append([]any{"t", int64(2)}, there(4)...),
		"number zero":               append([]any{"t", int64(2)}, there(0)...),
		"one twice":                 append([]any{"t", int64(1)}, append(there(1), there(1)...)...),
		"a number without a reason": {"t", int64(2), int64(1)},
		"a claim that met nothing":  {"t", int64(2), int64(1), nil},
		"a reason of another kind":  {"t", int64(2), int64(1), int64(7)},
		"numbers as texts":          {"t", "3"},
	} {
		batch := []*write{emptyWrite(), emptyWrite(), emptyWrite()}
		settle(batch, "t", answer, nil)
		for i, w := range batch {
			if w.made || !errors.Is(w.err, errCrossedReply) || errors.Is(w.err, store.ErrNotApplied) {
				t.Errorf("after an answer with %s, write %d is made %v, %v", name, i+1, w.made, w.err)
			}
		}
	}
	batch := []*write{emptyWrite(), emptyWrite(), emptyWrite()}
	batch[2].expect = "r"
	settle(batch, "t", []any{"t", int64(1), int64(3), nil, int64(1), "there"}, nil)
	if batch[0].there != "there" || !batch[1].made || batch[2].made || batch[2].there != "" || batch[2].err != nil {
		t.Errorf("an answer that accounts for all is not believed: %+v", batch)
	}
}
