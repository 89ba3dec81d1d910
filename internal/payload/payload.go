// Package payload reads the bodies of requests and fingerprints the requests, so that two
// deliveries of one call can be compared without keeping either.
package payload

import (
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"net/http"

	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/selector"
	"github.com/semelhq/semel/store"
)

// Rule says how to read and compare the requests of one route.
type Rule struct {
	Mode    Mode
	Headers []string      // headers to compare; canonical and sorted
	Parts   *selector.Set // parts of a JSON body to compare; nil: all
	// Keyless says that the key's places aren't compared. Fingerprints are marked accordingly.
	Keyless bool
	Max     int64         // the longest body, in bytes
	TempDir string        // for bodies of more than 64 KiB
	Large   chan struct{} // slots for large bodies in memory, shared by all routes
}

// Payload is the body of one request as the program behind the guard sees it: decoded, if it is
// one gzip or deflate member. The program itself always gets the body as received. The zero
// value is ready to use, and to use again after Release.
type Payload struct {
	rule   *Rule
	r      *http.Request
	spool  received
	coding body.Coding
	mode   Mode  // how to compare it
	size   int64 // in bytes, decoded
	opaque bool  // its coding can't be undone, so only its bytes can be compared
	text   []byte
	sum    hash.Hash // over target and body, if it was digested while arriving; else nil

	// Memory for later requests to reuse.
	body, plain, digest []byte
}

// Read reads the whole body of a request. Nothing is claimed yet, so a body that ends early
// costs nothing. The error is [ErrTooLarge], wraps [ErrSpool], or comes from the body.
func (p *Payload) Read(rule *Rule, r *http.Request) error {
	p.rule, p.r, p.mode = rule, r, rule.Mode.of(r.Header["Content-Type"])
	if r.Body == nil || r.Body == http.NoBody {
		p.mode = Raw
		return nil
	}
	if r.ContentLength > rule.Max {
		return ErrTooLarge
	}
	if p.mode == Raw && (r.ContentLength < 0 || r.ContentLength > spoolLimit) && len(r.Header[codingHeader]) == 0 && !rule.Keyless {
		p.sum = sha256.New()
		p.sum.Write(p.appendTarget(p.digest[:0], nil))
	}
	if want := max(min(r.ContentLength+1, spoolLimit+1), 512); want > int64(cap(p.body)) {
		p.body = make([]byte, 0, want)
	}
	var err error
	if p.body, err = p.spool.fill(r.Body, p.body[:0], rule.Max, rule.TempDir, p.sum); err != nil {
		return err
	}
	p.size = p.spool.size
	if len(r.Header[codingHeader]) > 0 {
		return p.decode()
	}
	return nil
}

// Hold is Read for a body that you have already read.
func (p *Payload) Hold(rule *Rule, r *http.Request, body []byte) error {
	p.rule, p.r, p.mode = rule, r, Raw
	if len(body) > 0 {
		p.mode = rule.Mode.of(r.Header["Content-Type"])
	}
	p.spool = received{data: body, size: int64(len(body))}
	p.size = p.spool.size
	return p.decode()
}

// Reuse returns b without its content, or nil if it is too large to keep for later requests.
func Reuse(b []byte) []byte {
	if cap(b) > 2*spoolLimit {
		return nil
	}
	return b[:0]
}

// Take hands over the body as received, so that you may use it for longer than the payload.
func (p *Payload) Take() Spool {
	body := p.spool
	p.spool = received{}
	return Spool{received: body}
}

// Again returns the body as received, for one of several runs.
func (p *Payload) Again() Spool { return Spool{received: p.spool} }

// Size returns the length of the payload in bytes.
func (p *Payload) Size() int64 { return p.size }

// Kind says how to read the payload, even if it is compared byte for byte: as JSON, as a form,
// or not at all.
func (p *Payload) Kind() Mode {
	if p.rule.Mode == Raw && !p.opaque {
		return Auto.of(p.r.Header["Content-Type"])
	}
	return p.mode
}

// codingHeader says that the body may differ from the received bytes, or that earlier versions
// compared it differently because of this header.
const codingHeader = "Content-Encoding"

// decode finds the size of a body with a coding. If it can't be decoded, or would become too
// long, it counts as received.
func (p *Payload) decode() error {
	p.coding = body.CodingOf(p.r.Header)
	if p.coding == body.Plain {
		return nil
	}
	ok := p.coding != body.Unknown
	if ok {
		var err error
		if ok, err = p.measure(); err != nil {
			return err
		}
	}
	if !ok {
		p.opaque, p.mode, p.coding, p.size, p.text = true, Raw, body.Plain, p.spool.size, nil
	}
	return nil
}

// measure decodes the body once, to find out whether that works and how long it gets. A short
// body stays in memory. A long one is decoded again for digesting, so that nobody can fill
// memory or disk with more than they have sent; each time takes one of the slots, like parsing.
func (p *Payload) measure() (ok bool, err error) {
	most := p.rule.Max
	src, err := p.coding.Decode(p.spool.reader())
	if err != nil {
		return false, spoolFault(err)
	}
	if p.plain == nil {
		p.plain = make([]byte, spoolLimit)
	}
	n := 0
	for room := p.plain[:min(most+1, spoolLimit)]; n < len(room) && err == nil; {
		var more int
		more, err = src.Read(room[n:]) // unlike io.ReadFull, which takes a body that breaks off for one that ended
		n += more
	}
	p.size = int64(n)
	switch {
	case err == io.EOF:
		p.text = p.plain[:n]
		return p.size <= most, nil
	case err != nil:
		return false, spoolFault(err)
	}
	free, err := p.slot()
	if err != nil {
		return false, err
	}
	defer free()
	rest, err := io.Copy(io.Discard, io.LimitReader(src, most-p.size+1))
	p.size += rest
	return err == nil && p.size <= most, spoolFault(err)
}

// short returns the whole payload if it is already in memory.
func (p *Payload) short() (text []byte, ok bool) {
	if p.coding == body.Plain {
		return p.spool.data, p.spool.file == nil
	}
	return p.text, p.text != nil
}

// reader reads the payload from its beginning.
func (p *Payload) reader() io.Reader {
	src, err := p.coding.Decode(p.spool.reader())
	if err != nil {
		return failing{err}
	}
	return src
}

// failing is a reader whose error says why there is nothing to read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Bytes returns the whole payload, in its own memory if it isn't in any. A slot, until it is
// freed, limits how many of those exist at a time.
func (p *Payload) Bytes() (text []byte, free func(), err error) {
	if text, ok := p.short(); ok {
		return text, func() {}, nil
	}
	if free, err = p.slot(); err != nil {
		return nil, func() {}, err
	}
	text = make([]byte, p.size)
	if _, err := io.ReadFull(p.reader(), text); err != nil {
		return nil, free, ErrSpool
	}
	return text, free, nil
}

// slot waits for one of the slots for large bodies.
func (p *Payload) slot() (free func(), err error) {
	select {
	case p.rule.Large <- struct{}{}:
		return func() { <-p.rule.Large }, nil
	case <-p.r.Context().Done():
		return nil, p.r.Context().Err()
	}
}

// Earlier returns a function that recognizes fingerprints of the request by earlier versions,
// which digested a body with a coding as received, a payload with the key in it, and the values
// that the key was made of as received. It is nil if there can't be any.
func (p *Payload) Earlier(places Places) func(store.Fingerprint) bool {
	coded := len(p.r.Header[codingHeader]) > 0
	if !coded && !p.rule.Keyless && len(places.Made) == 0 {
		return nil
	}
	var last store.Fingerprint // the one last asked about
	var same bool
	return func(first store.Fingerprint) bool {
		if first == last {
			return same
		}
		last, same = first, false
		if first.Scheme()&store.SchemeRestated != 0 {
			return false
		}
		if first.Scheme()&store.SchemeKeyless != 0 {
			way := *p
			fp, err := way.Fingerprint(Places{Key: places.Key})
			same = len(places.Made) > 0 && err == nil && fp == first
			return same
		}
		var ways []Payload
		if p.rule.Keyless || len(places.Made) > 0 {
			ways = append(ways, *p)
		}
		if coded {
			raw := *p
			raw.mode, raw.coding, raw.size, raw.sum = Raw, body.Plain, p.spool.size, nil
			ways = append(ways, raw)
		}
		for i := range ways {
			fp, err := ways[i].fingerprint(Places{})
			same = same || err == nil && fp == first
		}
		return same
	}
}

// spoolFault returns the error if reading the spool failed, and nil if only decoding did.
func spoolFault(err error) error {
	if errors.Is(err, ErrSpool) {
		return err
	}
	return nil
}

// Release frees the body and keeps memory for the next one, except what only unusually large
// bodies need.
func (p *Payload) Release() {
	p.spool.discard()
	*p = Payload{body: Reuse(p.body), plain: p.plain, digest: Reuse(p.digest)}
}
