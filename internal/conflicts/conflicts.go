// Package conflicts remembers which keys came again with another payload, with another
// credential or through another door, over all nodes of a store and across restarts. It writes
// them in the background, so no delivery waits for that.
//
// The list is in a few cells that all nodes share. What the refused deliveries asked for is in
// a separate cell for each record, and is read when somebody wants to compare.
package conflicts

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/behind"
)

const (
	// KeptFor is how long a key stays in the list after its last conflict.
	KeptFor = 7 * 24 * time.Hour
	// MaxPayload is the largest payload of a refused delivery that an index keeps, in bytes.
	MaxPayload = 64 << 10
	// MaxPresented is how many different payloads of a record's refused deliveries an index
	// keeps: the newest ones, and only one from unverified callers.
	MaxPresented = 4
	// MaxTenant bounds the payloads that a process keeps for one tenant in a day, in bytes: a
	// few thousand of full size.
	MaxTenant = 128 << 20
)

// Bounds of what isn't written yet. Beyond them, the index doesn't note refusals of further
// records, and keeps no payloads.
const (
	maxFresh      = 10_000
	maxFreshBytes = 8 << 20
	presentedSize = 300 // about how much a refused delivery takes besides its payload, in bytes
)

// Conflict sums up the conflicts of one key.
type Conflict struct {
	ID semel.ID
	// Decisions counts the refusals: conflict, other_caller and other_door. An index keeps
	// nothing else about other callers.
	Decisions map[semel.Decision]int64
	// Principals are the senders of other payloads, up to four.
	Principals []string
	// First and Last are the times of the first and the newest refusal, by the store's clock,
	// in Unix milliseconds.
	First, Last int64
}

// Presented is a payload that was refused because its key came with another one first.
type Presented struct {
	Fingerprint semel.Fingerprint
	// Principal is its first sender.
	Principal string
	// Count is how often it came; First and Last are as in [Conflict].
	Count       int64
	First, Last int64
	// Payload is the body of the request. It is nil unless the operation keeps payloads, this
	// one had at most MaxPayload bytes, and neither its sender nor their tenant had used up
	// their share.
	Payload []byte

	unverified bool
	charge     func(bytes int64) bool // counts what is kept against its sender's quota; nil: nobody counts
	paid       bool                   // the payload was counted
}

// Index keeps the conflicts of a store. Any number of them, in any number of processes, add to
// the same list. It may be used concurrently.
type Index struct {
	// Unverified reports whether nobody has verified a principal. Set it before you use the
	// index. Nil: all are verified.
	Unverified func(principal string) bool

	// Listed and Payloads aren't written yet: conflicts by the cell that lists them, and
	// refused payloads by record.
	Listed   *behind.Queue[int, news]
	Payloads *behind.Queue[semel.ID, []Presented]

	store semel.Store

	mu    sync.Mutex
	spent spent
}

// news are the conflicts of some keys since the last write.
type news struct {
	conflicts map[semel.ID]*Conflict
	// erased reports which identities to erase, and from when. Nil: none.
	erased func(id semel.ID, at time.Time) bool
}

// erases reports whether to erase a conflict.
func (n *news) erases(c *Conflict) bool {
	return n.erased != nil && n.erased(c.ID, time.UnixMilli(c.Last))
}

// New returns an index that keeps the conflicts of a store.
func New(st semel.Store) *Index {
	x := &Index{store: st}
	x.Listed, x.Payloads = behind.New(maxFresh, x.keepList), behind.New(maxFreshBytes, x.keepRefused)
	return x
}

// listed are the decisions that count as a Conflict.
var listed = []semel.Decision{semel.Conflict, semel.OtherCaller, semel.OtherDoor}

// Decided notes a decision if it is a conflict. It's for [semel.Events].
func (x *Index) Decided(ev semel.Decided) {
	if !slices.Contains(listed, ev.Decision) {
		return
	}
	at, p := ev.At.UnixMilli(), ev.Presented
	one := Conflict{ID: ev.ID, Decisions: map[semel.Decision]int64{ev.Decision: 1}, First: at, Last: at}
	if p != nil {
		one.Principals = []string{p.Principal}
	}
	x.Listed.Note(shardOf(ev.ID), func(n *news, room int) (grown int) {
		have, before := n.conflicts[ev.ID], len(n.conflicts)
		switch {
		case have != nil:
			one = have.plus(&one)
		case room <= 0:
			return 0
		case n.conflicts == nil:
			n.conflicts = map[semel.ID]*Conflict{}
		}
		n.conflicts[ev.ID] = &one
		return len(n.conflicts) - before
	})
	if p == nil {
		return
	}
	x.Payloads.Note(ev.ID, func(list *[]Presented, room int) (grown int) {
		one := Presented{Fingerprint: p.Fingerprint, Principal: p.Principal, Count: 1, First: at, Last: at}
		if p.Payload != nil && len(p.Payload) <= min(MaxPayload, room) {
			one.Payload, one.charge = p.Payload, p.Charge
		}
		one.unverified = x.Unverified != nil && x.Unverified(p.Principal)
		was := len(*list)
		*list, grown = with(*list, one)
		return grown + (len(*list)-was)*presentedSize
	})
}

// Purged forgets the requests of refused deliveries when an operator has purged their record.
// It's for [semel.Events].
func (x *Index) Purged(ev semel.Purged) {
	x.Payloads.Forget(func(id semel.ID) bool { return id == ev.ID })
}

// Erased forgets erased identities wherever it has noted them. It's for [semel.Events].
func (x *Index) Erased(ev semel.Erased) {
	x.Payloads.Forget(func(id semel.ID) bool { return ev.Includes(id, time.Time{}) })
	for shard := range shards {
		x.Listed.Note(shard, func(n *news, _ int) (grown int) {
			before := len(n.conflicts)
			n.erased = ev.Includes
			maps.DeleteFunc(n.conflicts, func(_ semel.ID, c *Conflict) bool { return n.erases(c) })
			return len(n.conflicts) - before
		})
	}
}

// plus returns the sum of c and more, with c's identity.
func (c *Conflict) plus(more *Conflict) Conflict {
	sum := Conflict{ID: c.ID, Decisions: map[semel.Decision]int64{}, Principals: c.Principals, First: c.First, Last: max(c.Last, more.Last)}
	if sum.First == 0 || more.First != 0 && more.First < sum.First {
		sum.First = more.First
	}
	for _, from := range []map[semel.Decision]int64{c.Decisions, more.Decisions} {
		for d, n := range from {
			sum.Decisions[d] += n
		}
	}
	for _, who := range more.Principals {
		sum.Principals = include(sum.Principals, who)
	}
	return sum
}

// maxPrincipals bounds the names in a Conflict.
const maxPrincipals = 4

func include(list []string, who string) []string {
	if slices.Contains(list, who) || len(list) == maxPrincipals {
		return list
	}
	return append(list[:len(list):len(list)], who)
}

// with adds a refused payload to a list, the newest last, and copies the payload if it is new.
// It returns by how many bytes the list's payloads have grown.
func with(list []Presented, one Presented) (_ []Presented, added int) {
	for i := range list {
		if have := &list[i]; have.Fingerprint == one.Fingerprint {
			one.Count += have.Count
			one.First, one.Last = min(have.First, one.First), max(have.Last, one.Last)
			one.Principal = have.Principal
			if have.Payload != nil {
				one.Payload, one.charge = have.Payload, have.charge
			} else if one.Payload != nil {
				one.Payload = bytes.Clone(one.Payload)
				added = len(one.Payload)
			}
			return append(append(list[:i:i], list[i+1:]...), one), added
		}
	}
	if one.Payload != nil {
		one.Payload = bytes.Clone(one.Payload)
	}
	if one.unverified { // who could use a new name for each delivery
		list = slices.DeleteFunc(slices.Clone(list), func(have Presented) bool {
			if have.unverified {
				added -= len(have.Payload)
			}
			return have.unverified
		})
	}
	list = append(list[:len(list):len(list)], one)
	added += len(one.Payload)
	if len(list) > MaxPresented {
		added -= len(list[0].Payload)
		list = list[1:]
	}
	return list, added
}

// spent counts how much of MaxTenant the tenants have used on the current day.
type spent struct {
	day   int64
	bytes map[string]int64
}

// spend counts bytes for a tenant, and reports whether its share had room for them.
func (s *spent) spend(tenant string, bytes, now int64) bool {
	if day := now / (24 * time.Hour).Milliseconds(); day != s.day || s.bytes == nil {
		s.day, s.bytes = day, map[string]int64{}
	}
	if s.bytes[tenant]+bytes > MaxTenant {
		return false
	}
	s.bytes[tenant] += bytes
	return true
}

// Run writes conflicts to the store until ctx is done, and then the rest. Without it, a read
// writes them.
func (x *Index) Run(ctx context.Context) {
	var work sync.WaitGroup
	work.Go(func() { x.Listed.Run(ctx) })
	x.Payloads.Run(ctx)
	work.Wait()
}
