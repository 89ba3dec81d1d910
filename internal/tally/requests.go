package tally

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// maxRequests is how many ids of a call's deliveries a cell keeps: the newest ones.
const maxRequests = 8

// callAttribute is the attribute of a cell that names the record beside it, by [store.ID.Encode].
const callAttribute = "call"

// marks stand for the ids of deliveries, the newest last. They don't contain the ids: a sender
// may put anything into one. They are attributes of the cell, where searches find them, and not
// part of its value, so an earlier program still counts, and loses only them.
type marks []string

func markOf(request string) string {
	sum := sha256.Sum256([]byte(request))
	return hex.EncodeToString(sum[:16])
}

// place returns the attribute for the mark at a place.
func place(i int) string { return "request_" + strconv.Itoa(i+1) }

// marksOf reads the marks of a cell.
func marksOf(cell store.Attributes) (list marks) {
	for i := range maxRequests {
		if mark, ok := cell[place(i)]; ok {
			list = append(list, mark)
		}
	}
	return list
}

// attributes puts the marks into the cell beside a record; nil without any.
func (list marks) attributes(id semel.ID) store.Attributes {
	if len(list) == 0 {
		return nil
	}
	all := store.Attributes{callAttribute: id.Encode()}
	for i, mark := range list {
		all[place(i)] = mark
	}
	return all
}

// with returns the list with a mark as its newest, without the oldest if there are too many.
func (list marks) with(mark string) marks {
	next := slices.DeleteFunc(slices.Clone(list), func(have string) bool { return have == mark })
	next = append(next, mark)
	return next[max(0, len(next)-maxRequests):]
}

// plus adds marks that don't already lead to the record, and reports whether there are any.
func (list marks) plus(more marks, rec *semel.Record) (_ marks, added bool) {
	for _, mark := range more {
		if !own(rec, mark) {
			list, added = list.with(mark), true
		}
	}
	return list, added
}

// own reports whether the record's own attributes keep the id behind a mark for good. A call
// that came to nothing takes the attributes of the next delivery that runs.
func own(rec *semel.Record, mark string) bool {
	return rec.Disposition != semel.DispositionAborted && slices.ContainsFunc(store.IDAttributes, func(name string) bool {
		id, ok := rec.Attributes[name]
		return ok && markOf(id) == mark
	})
}

// Answered notes the sender's id of a delivery, so that [Find] leads from it to the call. The
// record has the id of its first attempt, unless that came to nothing. Deliveries from somebody
// else, or through another door, don't count: they would push out the ids of the caller's own.
func (t *Tally) Answered(ev semel.Delivered) {
	switch {
	case ev.Request == "" || ev.ID.Key == "":
	case ev.Decision == "" || ev.Decision == semel.OtherCaller || ev.Decision == semel.OtherDoor:
	case ev.Decision == semel.Execute && ev.Attempt == 1 && ev.Status < 400:
	default:
		t.Note(ev.ID, func(n *note, _ int) (grown int) {
			grown = n.begin()
			n.requests = n.requests.with(markOf(ev.Request))
			return grown
		})
	}
}

// Reader reads records: an engine, or a client of a service.
type Reader interface {
	// Search is [semel.Engine.Search].
	Search(ctx context.Context, q store.Query) (store.Page, error)
	// Lookup is [semel.Engine.Lookup].
	Lookup(ctx context.Context, id semel.ID) (semel.Record, error)
}

// Find finds the calls with a delivery of this id that their records don't name: one of the last
// duplicates, an attempt that came to nothing, or one after the first. It returns the newest
// calls first, up to a number, and reports more if there may be others. Ids are written after
// deliveries, so the latest may be missing. With a tenant, it finds only that tenant's calls.
func Find(ctx context.Context, r Reader, tenant *string, request string, most int) (found []semel.Record, more bool, err error) {
	var either []store.Query
	for i := range maxRequests {
		either = append(either, store.Query{Attributes: store.Attributes{place(i): markOf(request)}})
	}
	q := store.Query{Tenant: tenant, Operation: store.CountsOperation, Any: [][]store.Query{either}}
	for {
		q.Limit = min(most-len(found), store.MaxSearchLimit)
		page, err := r.Search(ctx, q)
		if err != nil {
			return nil, false, err
		}
		for i := range page.Records {
			id, err := store.DecodeID(page.Records[i].Attributes[callAttribute])
			if err != nil {
				continue // a damaged cell doesn't count
			}
			rec, err := r.Lookup(ctx, id)
			if errors.Is(err, semel.ErrNotFound) {
				continue // purged, and its cell follows
			} else if err != nil {
				return nil, false, err
			}
			found = append(found, rec)
		}
		if q.Cursor = page.Next; q.Cursor == "" || len(found) >= most {
			return found, q.Cursor != "", nil
		}
	}
}
