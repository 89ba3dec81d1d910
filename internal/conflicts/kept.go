package conflicts

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/behind"
	"github.com/semelhq/semel/internal/form"
	"github.com/semelhq/semel/store"
)

const (
	listOperation = "semel.conflicts" // of the cells that hold the list
	// shards is how many cells the list is divided into, by the identity's digest, so that a
	// conflict rewrites only a small part of it.
	shards = 16
	// maxListed is how many keys a cell lists, some 400 bytes each. If there are more, the
	// tenant with the most keys loses the one with the oldest last conflict.
	maxListed = 256
	// maxShard and maxRefused bound cells, in bytes, below the limit of stores.
	maxShard   = 768 << 10
	maxRefused = 512 << 10
)

// keptConflict is the stored form of a Conflict.
type keptConflict struct {
	ID         string                   `json:"id"`
	Decisions  map[semel.Decision]int64 `json:"n"`
	Principals []string                 `json:"who,omitempty"`
	First      int64                    `json:"first"`
	Last       int64                    `json:"last"`
}

// keptRefused has the payloads that were refused for one record, and says which record of the
// identity that is.
type keptRefused struct {
	Since     store.Instant   `json:"since"` // when the record was made
	Presented []keptPresented `json:"presented"`
}

type keptPresented struct {
	Fingerprint semel.Fingerprint `json:"fingerprint"`
	Principal   string            `json:"who,omitempty"`
	Count       int64             `json:"n"`
	First       int64             `json:"first"`
	Last        int64             `json:"last"`
	Payload     []byte            `json:"payload"` // nil and empty differ
	Unverified  bool              `json:"unverified,omitempty"`
}

func shardOf(id semel.ID) int { return int(id.Digest()[0]) % shards }

func (x *Index) shard(n int) *store.Cell {
	return store.NewCell(x.store, semel.ID{Operation: listOperation, Key: strconv.Itoa(n)})
}

// List returns the conflicts of a tenant, or all if tenant is nil, the newest first. An error
// is the store's, or wraps [form.ErrNewer].
func (x *Index) List(ctx context.Context, tenant *string) ([]Conflict, error) {
	x.Listed.Flush(ctx)
	now, err := x.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	var all []Conflict
	for n := range shards {
		value, err := x.shard(n).Load(ctx)
		if err != nil {
			return nil, err
		}
		shard, err := parseShard(value.Data, now.Time())
		if err != nil {
			return nil, err
		}
		for _, c := range shard {
			if tenant == nil || c.ID.Tenant == *tenant {
				all = append(all, c)
			}
		}
	}
	slices.SortFunc(all, func(a, b Conflict) int {
		return cmp.Or(cmp.Compare(b.Last, a.Last), cmp.Compare(a.ID.Encode(), b.ID.Encode()))
	})
	return all, nil
}

// Refused returns the refused payloads of a record, the newest last: they came with its key
// while the record existed, and differ from its own. An error is the store's, or wraps
// [form.ErrNewer].
func (x *Index) Refused(ctx context.Context, rec *semel.Record) ([]Presented, error) {
	x.Payloads.Flush(ctx)
	value, err := store.NewCell(x.store, store.RefusedOf(rec.ID)).Load(ctx)
	if err != nil {
		return nil, err
	}
	return parseRefused(value.Data, rec)
}

// keepList adds conflicts to a cell of the list. If a newer program writes that cell, they are lost.
func (x *Index) keepList(ctx context.Context, n int, more *news) error {
	now, err := x.store.Now(ctx)
	if err != nil {
		return err
	}
	err = x.shard(n).Change(ctx, func(old store.CellValue) (store.CellValue, error) {
		list, err := parseShard(old.Data, now.Time())
		if err != nil {
			return store.CellValue{}, err
		}
		before := len(list)
		list = slices.DeleteFunc(list, func(c Conflict) bool { return more.erases(&c) })
		if len(list) == before && len(more.conflicts) == 0 {
			return store.CellValue{}, behind.ErrNothing
		}
		for _, c := range more.conflicts {
			if i := slices.IndexFunc(list, func(have Conflict) bool { return have.ID == c.ID }); i >= 0 {
				list[i] = list[i].plus(c)
			} else {
				list = append(list, *c)
			}
		}
		for len(list) > maxListed {
			list = dropOne(list)
		}
		data := encodeShard(list)
		for len(data) > maxShard { // keys and names of full length
			list = dropOne(list)
			data = encodeShard(list)
		}
		// A crash before this write loses the notes; a crash after it loses nothing.
		return store.CellValue{Data: data, KeepFor: KeptFor}, nil
	})
	if errors.Is(err, behind.ErrNothing) {
		return nil
	}
	return err
}

// dropOne drops the oldest conflict of the tenant that has the most, so that no tenant can push
// out another's. It starts with conflicts that only other callers have caused: somebody who
// makes up credentials mustn't push out the conflicts of a tenant's own callers.
func dropOne(list []Conflict) []Conflict {
	count := map[string]int{}
	for i := range list {
		count[list[i].ID.Tenant]++
	}
	drop := 0
	for i := range list {
		a, b := &list[i], &list[drop]
		if cmp.Or(cmp.Compare(count[b.ID.Tenant], count[a.ID.Tenant]), cmp.Compare(a.own(), b.own()), cmp.Compare(a.Last, b.Last)) < 0 {
			drop = i
		}
	}
	return slices.Delete(list, drop, drop+1)
}

// own returns 1 if the call's own caller is in conflict, and 0 if only other callers were
// counted.
func (c *Conflict) own() int {
	if c.Decisions[semel.Conflict]+c.Decisions[semel.OtherDoor] > 0 {
		return 1
	}
	return 0
}

func encodeShard(list []Conflict) []byte {
	kept := make([]keptConflict, 0, len(list))
	for i := range list {
		c := &list[i]
		kept = append(kept, keptConflict{c.ID.Encode(), c.Decisions, c.Principals, c.First, c.Last})
	}
	return encoded(kept)
}

// read reads a cell. A damaged one counts as empty. The error is [form.ErrNewer]. Form 1 of the
// list is an array, which has no number; a later one is an object.
func read[T any](data []byte) (kept T, err error) {
	if data == nil {
		return kept, nil
	}
	if err = form.Read(data, 1, &kept); errors.Is(err, form.ErrNewer) {
		return kept, fmt.Errorf("the conflicts that are kept: %w", err)
	} else if err != nil {
		return *new(T), nil
	}
	return kept, nil
}

// parseShard reads a cell of the list, without conflicts older than KeptFor.
func parseShard(data []byte, now time.Time) ([]Conflict, error) {
	kept, err := read[[]keptConflict](data)
	if err != nil {
		return nil, err
	}
	var list []Conflict
	for _, k := range kept {
		if id, err := store.DecodeID(k.ID); err == nil && k.Last >= now.Add(-KeptFor).UnixMilli() {
			list = append(list, Conflict{id, k.Decisions, k.Principals, k.First, k.Last})
		}
	}
	return list, nil
}

// keepRefused adds refused payloads to a record's cell.
func (x *Index) keepRefused(ctx context.Context, id semel.ID, more *[]Presented) error {
	return behind.Beside(ctx, x.store, id, store.RefusedOf(id), func(rec *semel.Record, old store.CellValue) (store.CellValue, error) {
		list, err := parseRefused(old.Data, rec)
		if err != nil {
			return store.CellValue{}, err
		}
		for i := range *more {
			x.pay(id.Tenant, list, &(*more)[i])
			list, _ = with(list, (*more)[i])
		}
		kept := keptRefused{Since: rec.CreatedAt}
		for _, p := range list {
			kept.Presented = append(kept.Presented, keptPresented{p.Fingerprint, p.Principal, p.Count, p.First, p.Last, p.Payload, p.unverified})
		}
		data := encoded(kept)
		for len(data) > maxRefused {
			kept.Presented = kept.Presented[1:]
			data = encoded(kept)
		}
		return store.CellValue{Data: data}, nil
	})
}

// pay counts a payload that isn't in the list yet against its sender's quota and their tenant's
// share. If either is used up, the payload isn't kept. Each payload is paid for once, however
// often the cell is written.
func (x *Index) pay(tenant string, list []Presented, one *Presented) {
	kept := slices.ContainsFunc(list, func(p Presented) bool { return p.Fingerprint == one.Fingerprint && p.Payload != nil })
	if one.Payload == nil || one.paid || kept {
		return
	}
	size := int64(len(one.Payload))
	x.mu.Lock()
	may := x.spent.spend(tenant, size, one.Last)
	x.mu.Unlock()
	if one.paid = true; !may || one.charge != nil && !one.charge(size) {
		one.Payload = nil
	}
}

// parseRefused reads a cell of refused payloads. It ignores the payloads of an earlier record
// of the identity.
func parseRefused(data []byte, rec *semel.Record) ([]Presented, error) {
	kept, err := read[keptRefused](data)
	if err != nil || kept.Since != rec.CreatedAt {
		return nil, err
	}
	var list []Presented
	for _, k := range kept.Presented {
		list = append(list, Presented{
			Fingerprint: k.Fingerprint, Principal: k.Principal, Count: k.Count, First: k.First, Last: k.Last, Payload: k.Payload, unverified: k.Unverified,
		})
	}
	return list, nil
}

func encoded(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts and numbers always encode
	}
	return data
}
