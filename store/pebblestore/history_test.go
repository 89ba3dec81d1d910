package pebblestore

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/store"
)

// The tests that crash a store share what is in this file: callers that work on
// a store, a history of what they were told, and the comparison of that history
// with what is stored after the crash.

var seedFlag = flag.Uint64("pebblestore.seed", 0, "seed of what is random in the crash tests; 0: that of package thorough")

// newSeed is the seed of a test, printed so that it can be repeated. It fixes
// what the callers do and where they are interrupted; how they interleave is up
// to the scheduler.
func newSeed(t testing.TB) uint64 {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = thorough.Seed()
	}
	t.Logf("repeat with -pebblestore.seed=%d", seed)
	return seed
}

// A mark says how far an identity has come: 2v when version v of its record is
// stored, 2v+1 when that was purged. The versions of an identity only rise.
type mark int64

func written(version int64) mark { return mark(2 * version) }
func purged(version int64) mark  { return mark(2*version + 1) }

// account is what is known about one identity.
type account struct {
	versions int64 // given out
	told     mark  // the furthest that any caller was told
	final    int64 // the version with the result that callers were told; 0: none
	tried    mark  // the furthest that any caller tried to write
	removing mark  // the furthest that any caller tried to purge
	claimed  bool  // a caller was told that it has created the record
}

// history is what callers tried, and what they were told.
type history struct {
	mu       sync.Mutex
	base     int64 // versions are above it
	accounts map[semel.ID]*account
	clock    store.Instant // read before a write that was acknowledged
	acks     int
	notes    map[string]int64 // the last entry without a record that was acknowledged, by its key
	// tell, if set, also gets each entry, before tries and after answers.
	tell func(verb string, id semel.ID, state semel.State, m mark)
}

func newHistory(base int64) *history {
	return &history{base: base, accounts: map[semel.ID]*account{}, notes: map[string]int64{}}
}

// account returns the account of id. The caller holds h.mu.
func (h *history) account(id semel.ID) *account {
	a := h.accounts[id]
	if a == nil {
		a = &account{versions: h.base}
		h.accounts[id] = a
	}
	return a
}

// version gives out a version, which no other write of id has.
func (h *history) version(id semel.ID) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.account(id)
	a.versions++
	return a.versions
}

// The entries of a history.
const (
	verbTry    = "try"    // is going to be asked for
	verbClaim  = "claim"  // a caller was told that it created this
	verbTold   = "told"   // a caller was told that this is stored
	verbPurged = "purged" // a caller was told that this is gone
)

// enter adds an entry. It fails where callers were told what can't be true.
func (h *history) enter(verb string, id semel.ID, state semel.State, m mark) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.account(id)
	if verb == verbTry {
		a.versions = max(a.versions, int64(m/2))
		if m%2 == 0 {
			a.tried = max(a.tried, m)
		} else {
			a.removing = max(a.removing, m)
		}
	} else {
		h.acks++
		if a.told = max(a.told, m); m > a.tried && m > a.removing {
			return fmt.Errorf("%s: a caller was told of %d, and %d is the last that was tried", id.Key, m, a.tried)
		}
	}
	switch {
	case verb == verbClaim && a.claimed:
		return fmt.Errorf("%s: two callers were told that they created it", id.Key)
	case verb == verbClaim:
		a.claimed = true
	case verb == verbPurged:
		a.claimed, a.final = false, 0
	}
	if verb == verbTold && state.Terminal() {
		if a.final != 0 && a.final != int64(m/2) {
			return fmt.Errorf("%s: callers were told of results %d and %d", id.Key, a.final, m/2)
		}
		a.final = int64(m / 2)
	}
	if h.tell != nil {
		h.tell(verb, id, state, m)
	}
	return nil
}

// snapshot is what callers know at this moment. Whatever is on the disk later
// must agree with it.
type snapshot struct {
	accounts map[semel.ID]account
	clock    store.Instant
	notes    map[string]int64
}

func (h *history) snapshot() snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := snapshot{make(map[semel.ID]account, len(h.accounts)), h.clock, maps.Clone(h.notes)}
	for id, a := range h.accounts {
		s.accounts[id] = *a
	}
	return s
}

// found is what a store holds, as inspect found it.
type found map[semel.ID]foundRecord

type foundRecord struct {
	version int64
	state   semel.State
}

// compare holds what a store has after a crash against what callers were told
// before it, and against what they tried.
func (h *history) compare(after found) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for id, a := range h.accounts {
		is, stored := after[id]
		switch {
		case !stored && a.told%2 == 0 && a.told > 0 && a.removing < a.told:
			errs = append(errs, fmt.Errorf("%s: version %d was acknowledged and nothing is stored", id.Key, a.told/2))
		case stored && written(is.version) < a.told && a.told%2 == 1:
			errs = append(errs, fmt.Errorf("%s: version %d was purged and version %d is back", id.Key, a.told/2, is.version))
		case stored && written(is.version) < a.told:
			errs = append(errs, fmt.Errorf("%s: version %d was acknowledged and version %d is stored", id.Key, a.told/2, is.version))
		case stored && written(is.version) > a.tried:
			errs = append(errs, fmt.Errorf("%s: version %d is stored and nobody wrote it", id.Key, is.version))
		case stored && a.final != 0 && is.version != a.final && a.removing < written(a.final):
			errs = append(errs, fmt.Errorf("%s: the result of version %d was acknowledged and version %d is stored", id.Key, a.final, is.version))
		}
	}
	for id, is := range after {
		if h.accounts[id] == nil {
			errs = append(errs, fmt.Errorf("%s: version %d is stored and was never written, or is back after its purge", id.Key, is.version))
		}
	}
	return errors.Join(errs...)
}

// clone is a history that goes on by itself.
func (h *history) clone() *history {
	c := newHistory(h.base)
	c.clock = h.clock
	for id, a := range h.snapshot().accounts {
		c.accounts[id] = &a
	}
	return c
}

// rewind makes callers forget what they were told after a snapshot. What they
// tried may still have reached the disk.
func (h *history) rewind(before snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock, h.notes = before.clock, before.notes
	for id, a := range h.accounts {
		knew := before.accounts[id]
		a.told, a.final, a.claimed = knew.told, knew.final, knew.claimed
		a.removing = max(a.removing, knew.removing)
	}
}

// resume makes h the history of a store that holds what was found. Accounts of
// identities that are gone for good are closed.
func (h *history) resume(after found) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, a := range h.accounts {
		is, stored := after[id]
		if !stored && !lasting(id) {
			delete(h.accounts, id)
			continue
		}
		// Whatever is stored from now on has a higher version.
		*a = account{versions: a.versions, tried: a.tried, told: purged(a.versions)}
		if stored {
			a.told, a.claimed = written(is.version), true
			if is.state.Terminal() {
				a.final = is.version
			}
		}
	}
}

// testID is the identity of a key.
func testID(key string) semel.ID {
	return semel.ID{Tenant: "tenant", Principal: "principal", Operation: "operation", Key: key}
}

var testEpoch = store.InstantOf(time.Date(2031, 2, 3, 4, 5, 6, 7, time.UTC))

// testRecord is the one record of an identity that has this version and state.
// All of it follows from these, so that a record can be recognized as whole.
func testRecord(id semel.ID, version int64, state semel.State) semel.Record {
	digest := id.Digest()
	binary.BigEndian.PutUint64(digest[:8], uint64(version))
	rng := rand.NewChaCha8(digest)
	rec := semel.Record{
		ID: id, State: state, Principal: id.Principal, Fence: version, Origin: version, Attempt: 1, Holder: "holder",
		Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(id.Key)),
		CreatedAt:   testEpoch, UpdatedAt: testEpoch, StartedAt: testEpoch, NextAt: testEpoch.Add(time.Duration(version) * time.Second),
	}
	rng.Read(rec.Revision[:])
	switch r := rng.Uint64() % 64; {
	case r == 0:
		rec.Result.Data = make([]byte, 20_000)
	case r < 16:
		rec.NextAt = 0 // never due
	}
	if state.Terminal() {
		rec.Disposition, rec.EndedAt, rec.ExpiresAt = semel.DispositionCompleted, testEpoch, testEpoch.Add(time.Hour)
		if rec.Result.Data == nil {
			rec.Result.Data = make([]byte, rng.Uint64()%1500)
		}
	}
	rng.Read(rec.Result.Data)
	return rec
}

// genuine reports what is wrong with a record that a store returned.
func genuine(id semel.ID, rec semel.Record) error {
	if want := testRecord(id, rec.Fence, rec.State); rec.ID != id || !reflect.DeepEqual(rec, want) {
		return fmt.Errorf("%s: the stored record with fence %d is none that was written", id.Key, rec.Fence)
	}
	return nil
}

// passed takes note of a time that the store gave out before a write that was
// acknowledged.
func (h *history) passed(now store.Instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now > h.clock {
		h.clock = now
	}
}

// gone takes note that nothing is stored, and fails where that can't be.
func (h *history) gone(id semel.ID) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.account(id)
	if a.told%2 == 0 && a.told > 0 && a.removing < a.told {
		return fmt.Errorf("%s: version %d was acknowledged and nothing is stored", id.Key, a.told/2)
	}
	a.claimed, a.final, a.told = false, 0, max(a.told, a.removing)
	return nil
}
