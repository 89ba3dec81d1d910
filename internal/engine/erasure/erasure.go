// Package erasure lists recently erased identities, without revealing them.
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
	// For is how long an erasure stays listed: longer than anything beside a record names an
	// identity (a week), and longer than a sender repeats an event of a payment (30 days).
	For = 31 * 24 * time.Hour
	// most bounds the list, some 100 KB.
	most = 4096
)

// one says that an identity was erased, without revealing it.
type one struct {
	at store.Instant
	// blinded: the digest comes from [Blind]. Otherwise it uses the list's own key.
	blinded bool
	digest  store.Subject
}

// Blind digests an identity with a secret that isn't in the store. Nil in a program without the
// secret.
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

// Parse reads a list. Without data it returns a new one, with its own key.
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

// Encode returns the list in the form that [Parse] reads.
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

// digest returns the digest of an identity: with the secret, which is in no store, or without one
// with the key in the list. A plain digest could be found by trying names, such as mail addresses.
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

// Lists reports whether an identity was erased recently, by a program with this one's secret or
// without any.
func (l *List) Lists(blind Blind, id store.ID, now store.Instant) bool {
	return slices.ContainsFunc([]Blind{nil, blind}, func(blind Blind) bool {
		d, _ := l.digest(blind, id)
		return slices.ContainsFunc(l.list, func(e one) bool { return e.digest == d && now < e.at.Add(For) })
	})
}

// Includes returns a function that reports whether to erase everything that a program knows
// about an identity from a given time. The program last read the list at read. If in doubt it
// says yes: for erasures with a secret that isn't here, and for ones that have left the list.
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
