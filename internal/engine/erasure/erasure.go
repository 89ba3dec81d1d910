// Package erasure lists the identities that were erased lately, without telling which.
package erasure

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/semelhq/semel/store"
)

const (
	// For is how long an erasure is listed: longer than anything beside a record names
	// an identity (a week), and longer than a sender repeats an event of a payment (30 days).
	For = 31 * 24 * time.Hour
	// most bounds the list, some 100 KB.
	most = 4096
)

// one says that an identity was erased, without telling which.
type one struct {
	at store.Instant
	// blinded: the digest is by [Blind]. Otherwise it is keyed with the list's own key.
	blinded bool
	digest  store.Subject
}

// Blind digests an identity by a secret that isn't in the store. Nil in a program without it.
type Blind func(store.ID) store.Subject

// List has the erasures, the oldest first.
type List struct {
	key [32]byte
	// Missing is a time until which some erasures may not be listed.
	Missing store.Instant
	list    []one
}

// form is the form of the list, its first byte. The rest is the key, Missing, and for
// each erasure its time, whether it is blinded, and the digest.
const (
	form = 1
	head = 1 + 32 + 8
	size = 8 + 1 + 16
)

var errNewer = &store.Error{Code: store.CodeUnsupported, Message: "a newer program keeps the list of what was erased: use that one, or a later one"}

// Parse reads a list. That of no data is a new one, with a key of its own.
func Parse(data []byte) (l List, err error) {
	if len(data) == 0 {
		_, _ = rand.Read(l.key[:]) // which never fails
		return l, nil
	}
	if data[0] != form || len(data) < head || (len(data)-head)%size != 0 {
		return l, errNewer
	}
	copy(l.key[:], data[1:])
	l.Missing = store.Instant(binary.BigEndian.Uint64(data[33:]))
	for data := range slices.Chunk(data[head:], size) {
		l.list = append(l.list, one{store.Instant(binary.BigEndian.Uint64(data)), data[8] == 1, store.Subject(data[9:])})
	}
	return l, nil
}

// Encode returns what [Parse] reads.
func (l *List) Encode() []byte {
	b := append([]byte{form}, l.key[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(l.Missing))
	for _, e := range l.list {
		b = binary.BigEndian.AppendUint64(b, uint64(e.at))
		b = append(b, 0)
		if e.blinded {
			b[len(b)-1] = 1
		}
		b = append(b, e.digest[:]...)
	}
	return b
}

// digest is that of an identity: by the secret, which is in no store, or without one by the key
// in the list. Whoever tries names, such as addresses of mail, would find a plain digest.
func (l *List) digest(blind Blind, id store.ID) (d store.Subject, blinded bool) {
	if blind != nil {
		return blind(id), true
	}
	of := id.Digest()
	mac := hmac.New(sha256.New, l.key[:])
	mac.Write(of[:])
	return store.Subject(mac.Sum(nil)), false
}

// Add lists an identity as erased now.
func (l *List) Add(blind Blind, id store.ID, now store.Instant) {
	d, blinded := l.digest(blind, id)
	l.list = slices.DeleteFunc(l.list, func(e one) bool { return e.digest == d || e.at.Add(For) < now })
	l.list = append(l.list, one{now, blinded, d})
	if n := len(l.list) - most; n > 0 {
		l.Missing = l.list[n-1].at
		l.list = l.list[n:]
	}
}

// Lists reports whether an identity was erased lately, by a program with this one's secret or
// without one.
func (l *List) Lists(blind Blind, id store.ID, now store.Instant) bool {
	return slices.ContainsFunc([]Blind{nil, blind}, func(blind Blind) bool {
		d, _ := l.digest(blind, id)
		return slices.ContainsFunc(l.list, func(e one) bool { return e.digest == d && now < e.at.Add(For) })
	})
}

// Includes returns a function that reports whether to erase all that a program knows about an
// identity from a given time. The program last read the list at read. In doubt the answer is
// yes: for erasures by a secret that isn't here, and for ones that have left the list.
func (l *List) Includes(blind Blind, read store.Instant) func(store.ID, time.Time) bool {
	at := make(map[one]store.Instant, len(l.list)) // by blinded and digest
	var all store.Instant
	if read <= l.Missing {
		all = l.Missing
	}
	for _, e := range l.list {
		if e.blinded && blind == nil {
			all = max(all, e.at)
		}
		at[one{0, e.blinded, e.digest}] = e.at
	}
	return func(id store.ID, when time.Time) bool {
		until := all
		for _, blind := range []Blind{nil, blind} {
			d, blinded := l.digest(blind, id)
			until = max(until, at[one{0, blinded, d}])
		}
		return until != 0 && !when.After(until.Time())
	}
}
