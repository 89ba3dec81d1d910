package semel

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/semelhq/semel/store"
)

// erasedID is the cell that lists recent erasures, so that every engine on the store reports
// them to its program.
var erasedID = ID{Operation: reservedPrefix + "erased", Key: "erased"}

const (
	// erasedFor is how long an erasure is listed: longer than anything beside a record names
	// an identity (a week), and longer than a sender repeats an event of a payment (30 days).
	erasedFor = 31 * 24 * time.Hour
	// maxErased bounds the list, some 100 KB.
	maxErased = 4096
	// erasedPause is how often Run reads the list. People wait for its news.
	erasedPause = 2 * time.Second
	// erasedLate is how long after an erasure a program may still note an earlier decision.
	erasedLate = 10 * time.Second
)

// erasure says that an identity was erased, without telling which.
type erasure struct {
	at store.Instant
	// blinded: the digest is [Witness.Subject]. Otherwise it is keyed with the list's own key.
	blinded bool
	digest  store.Subject
}

// erasures is the list, the oldest first.
type erasures struct {
	key     [32]byte
	missing store.Instant // erasures until then may not be listed
	list    []erasure
}

// erasureForm is the form of the list, its first byte. The rest is the key, missing, and for
// each erasure its time, whether it is blinded, and the digest.
const (
	erasureForm = 1
	erasureHead = 1 + 32 + 8
	erasureSize = 8 + 1 + 16
)

var errNewerErasures = &Error{Code: CodeUnsupported, Message: "a newer program keeps the list of what was erased: use that one, or a later one"}

func parseErasures(data []byte) (l erasures, err error) {
	if len(data) == 0 {
		_, _ = rand.Read(l.key[:]) // which never fails
		return l, nil
	}
	if data[0] != erasureForm || len(data) < erasureHead || (len(data)-erasureHead)%erasureSize != 0 {
		return l, errNewerErasures
	}
	copy(l.key[:], data[1:])
	l.missing = store.Instant(binary.BigEndian.Uint64(data[33:]))
	for one := range slices.Chunk(data[erasureHead:], erasureSize) {
		l.list = append(l.list, erasure{store.Instant(binary.BigEndian.Uint64(one)), one[8] == 1, store.Subject(one[9:])})
	}
	return l, nil
}

func (l *erasures) encode() []byte {
	b := append([]byte{erasureForm}, l.key[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(l.missing))
	for _, one := range l.list {
		b = binary.BigEndian.AppendUint64(b, uint64(one.at))
		b = append(b, 0)
		if one.blinded {
			b[len(b)-1] = 1
		}
		b = append(b, one.digest[:]...)
	}
	return b
}

// digest is that of an identity: by the secret of the evidence log, which is in no store, or
// where this program has none, by the key in the list. A plain digest could be found by trying
// names, such as addresses of mail.
func (l *erasures) digest(w Witness, id ID) (d store.Subject, blinded bool) {
	if w != nil {
		return w.Subject(id), true
	}
	of := id.Digest()
	mac := hmac.New(sha256.New, l.key[:])
	mac.Write(of[:])
	return store.Subject(mac.Sum(nil)), false
}

// add lists an identity as erased now.
func (l *erasures) add(w Witness, id ID, now store.Instant) {
	d, blinded := l.digest(w, id)
	l.list = slices.DeleteFunc(l.list, func(one erasure) bool { return one.digest == d || one.at.Add(erasedFor) < now })
	l.list = append(l.list, erasure{now, blinded, d})
	if n := len(l.list) - maxErased; n > 0 {
		l.missing = l.list[n-1].at
		l.list = l.list[n:]
	}
}

// includes returns a function that reports whether to erase what a program knows of an
// identity from a given time. The program last read the list at read. In doubt the answer is
// yes: for erasures by a secret that isn't here, and for ones that have left the list.
func (l *erasures) includes(w Witness, read store.Instant) func(ID, time.Time) bool {
	at := make(map[erasure]store.Instant, len(l.list)) // by blinded and digest
	var all store.Instant
	if read <= l.missing {
		all = l.missing
	}
	for _, one := range l.list {
		if one.blinded && w == nil {
			all = max(all, one.at)
		}
		at[erasure{0, one.blinded, one.digest}] = one.at
	}
	return func(id ID, when time.Time) bool {
		var until store.Instant
		for _, w := range []Witness{nil, w} {
			d, blinded := l.digest(w, id)
			until = max(until, at[erasure{0, blinded, d}])
		}
		return !when.After(max(until, all).Time()) && max(until, all) != 0
	}
}

// eraseRecord erases everything that names an identity, except its record.
func (e *Engine) eraseRecord(ctx context.Context, rec *Record) error {
	if e.extras.Evidence != nil && e.opts.Witness != nil {
		if _, err := e.opts.Witness.EraseRecord(ctx, rec.ID); err != nil {
			return e.storeError("erase evidence", rec.ID, err)
		}
	}
	if name := rec.Attributes[store.AttributePayment]; name != "" {
		if err := e.erasePayment(ctx, rec, store.PaymentOf(rec.ID.Tenant, name)); err != nil {
			return err
		}
	}
	return e.declareErased(ctx, rec.ID)
}

// erasePayment removes an event's decision from the state of its payment, and deletes the
// state after its last event.
func (e *Engine) erasePayment(ctx context.Context, rec *Record, payment ID) error {
	call, cancel := e.limited(ctx)
	defer cancel()
	now, err := e.now(call)
	if err != nil {
		return err
	}
	event := store.EventOf(rec.ID)
	err = store.NewCell(e.store, payment).Change(call, func(old store.CellValue) (v store.CellValue, err error) {
		var kept, events map[string]json.RawMessage
		if old.Data == nil {
			return v, errNotInPayment
		}
		if json.Unmarshal(old.Data, &kept) != nil || kept["form"] != nil || json.Unmarshal(kept["events"], &events) != nil {
			return v, errNewerPayment
		}
		if _, ok := events[event]; !ok {
			return v, errNotInPayment
		}
		delete(events, event)
		// A crash from here on leaves the record: whoever was cut off erases it again, and until
		// then the event is refused. Nobody applies it between these writes.
		if err := e.declareErased(call, ID{Tenant: payment.Tenant, Operation: payment.Operation, Key: event}); err != nil {
			return v, err
		}
		if len(events) == 0 {
			return v, e.declareErased(call, payment)
		}
		if kept["events"], err = json.Marshal(events); err == nil {
			v.Data, err = json.Marshal(kept)
		}
		v.KeepFor = max(old.KeepFor-now.Sub(old.At), time.Second) // as long as it would have been kept
		return v, err
	})
	if errors.Is(err, errNotInPayment) {
		return nil
	}
	return err
}

var (
	errNotInPayment = errors.New("the payment says nothing of the event")
	errNewerPayment = &Error{Code: CodeUnsupported, Message: "the state of the payment can't be read here: use a later program, or purge it by itself"}
)

// Erased reports whether one of these identities was erased in the last 31 days, by an engine that
// had this one's secret or none.
func (in Internal) Erased(ctx context.Context, ids ...ID) (bool, error) {
	e := in.engine
	call, cancel := e.limited(ctx)
	defer cancel()
	v, err := store.NewCell(e.store, erasedID).Load(call)
	if err != nil || v.Data == nil {
		return false, err
	}
	l, err := parseErasures(v.Data)
	if err != nil {
		return false, err
	}
	now, err := e.now(call)
	return slices.ContainsFunc(ids, func(id ID) bool {
		return slices.ContainsFunc([]Witness{nil, e.opts.Witness}, func(w Witness) bool {
			d, _ := l.digest(w, id)
			return slices.ContainsFunc(l.list, func(one erasure) bool { return one.digest == d && now < one.at.Add(erasedFor) })
		})
	}), err
}

// declareErased lists an identity as erased.
func (e *Engine) declareErased(ctx context.Context, id ID) error {
	call, cancel := e.limited(ctx)
	defer cancel()
	now, err := e.now(call)
	if err != nil {
		return err
	}
	return store.NewCell(e.store, erasedID).Change(call, func(old store.CellValue) (store.CellValue, error) {
		l, err := parseErasures(old.Data)
		l.add(e.opts.Witness, id, now)
		// A crash before this write leaves the record, and so does one after it: whoever was
		// cut off erases it again.
		return store.CellValue{Data: l.encode(), KeepFor: erasedFor}, err
	})
}

// canErase reports why this program can't erase what the evidence log says, or nil. Where there
// is no log, there is nothing to erase in it.
func (e *Engine) canErase(ctx context.Context) error {
	es := e.extras.Evidence
	if es == nil || e.opts.Witness != nil {
		return nil
	}
	call, cancel := e.limited(ctx)
	defer cancel()
	entries, err := es.ReadEvidence(call, 0, 1)
	if err != nil {
		return e.storeError("read evidence", ID{}, err)
	}
	if len(entries) > 0 {
		return &Error{Code: CodeUnsupported, Message: "evidence can't be erased here: this program doesn't write the evidence log"}
	}
	return nil
}

// tellErased calls Events.Erased if something was erased lately or since the list was read last.
// After an error it is read again soon.
func (e *Engine) tellErased(ctx context.Context) {
	if e.events.Erased == nil {
		return
	}
	call, cancel := e.limited(ctx)
	defer cancel()
	now, err := e.now(call)
	if err != nil {
		return
	}
	v, err := store.NewCell(e.store, erasedID).Load(call)
	if err != nil {
		return
	}
	read := store.Instant(e.erasedRead.Swap(int64(now)))
	if v.Revision.IsZero() || v.At.Add(erasedLate) < read {
		return
	}
	l, err := parseErasures(v.Data)
	if err != nil {
		l.missing = v.At // a newer program's
	}
	e.events.Erased(Event{At: v.At.Time(), Erased: l.includes(e.opts.Witness, read)})
}
