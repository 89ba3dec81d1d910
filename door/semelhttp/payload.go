package semelhttp

import (
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/store"
)

// payload is the body of a request as the program behind the guard sees it: decoded, if it
// is one member of gzip or deflate. What the program gets is always the body as it came.
type payload struct {
	spool  *spool // the body as it came
	coding body.Coding
	mode   BodyMode // how it is compared
	size   int64    // in bytes, decoded
	// opaque: it has a coding that can't be undone, so its bytes are all that is known.
	opaque bool
	// text is all of it if it was decoded and is short.
	text []byte
	sum  hash.Hash // of it and the target, if it was digested as it came; else nil
}

// coded reports whether the body may differ from what came, or earlier versions compared it
// in another way because of its header.
func coded(header http.Header) bool { return len(header["Content-Encoding"]) > 0 }

// read reads the whole body. Nothing is claimed yet, so a body that ends early costs nothing.
func (h *handler) read(r *http.Request, sc *scratch) error {
	p := &sc.payload
	*p = payload{spool: &sc.spool, mode: bodyMode(h.route.Body, r.Header)}
	if r.Body == nil || r.Body == http.NoBody {
		p.mode = BodyRaw
		return nil
	}
	if r.ContentLength > h.route.MaxBody {
		return errTooLarge
	}
	if p.mode == BodyRaw && (r.ContentLength < 0 || r.ContentLength > spoolLimit) && !coded(r.Header) && !h.picks.keyless() {
		p.sum = sha256.New()
		p.sum.Write(h.appendTarget(sc.digest[:0], r, nil))
	}
	if want := max(min(r.ContentLength+1, spoolLimit+1), 512); want > int64(cap(sc.body)) {
		sc.body = make([]byte, 0, want)
	}
	var err error
	if sc.body, err = sc.spool.fill(r.Body, sc.body[:0], h.route.MaxBody, h.guard.opts.TempDir, p.sum); err != nil {
		return err
	}
	return h.decode(r, sc)
}

// decode sees what a body is that was read. One that can't be decoded, or would become too
// long, counts as it came.
func (h *handler) decode(r *http.Request, sc *scratch) error {
	p := &sc.payload
	p.size = sc.spool.size
	p.coding = body.CodingOf(r.Header)
	if p.coding == body.Plain {
		return nil
	}
	ok := p.coding != body.Unknown
	if ok {
		var err error
		if ok, err = h.measure(r, sc); err != nil {
			return err
		}
	}
	if !ok {
		p.opaque, p.mode, p.coding, p.size, p.text = true, BodyRaw, body.Plain, sc.spool.size, nil
	}
	return nil
}

// measure decodes the body once, to see whether it can be, and how long it gets. A short one
// is kept. A long one is decoded again when it is digested, so that nobody fills memory or disk
// with what they haven't sent, and takes one of the slots each time, as parsing does.
func (h *handler) measure(r *http.Request, sc *scratch) (ok bool, err error) {
	p, most := &sc.payload, h.route.MaxBody
	src, err := p.coding.Decode(sc.spool.reader())
	if err != nil {
		return false, spoolFault(err)
	}
	if sc.plain == nil {
		sc.plain = make([]byte, spoolLimit)
	}
	n := 0
	for room := sc.plain[:min(most+1, spoolLimit)]; n < len(room) && err == nil; {
		var more int
		more, err = src.Read(room[n:]) // not io.ReadFull: it says of a body that breaks off that it ended
		n += more
	}
	p.size = int64(n)
	switch {
	case err == io.EOF:
		p.text = sc.plain[:n]
		return p.size <= most, nil
	case err != nil:
		return false, spoolFault(err)
	}
	free, err := h.slot(r)
	if err != nil {
		return false, err
	}
	defer free()
	rest, err := io.Copy(io.Discard, io.LimitReader(src, most-p.size+1))
	p.size += rest
	return err == nil && p.size <= most, spoolFault(err)
}

// short is the whole payload if it is in memory already.
func (p *payload) short() (text []byte, ok bool) {
	if p.coding == body.Plain {
		return p.spool.data, p.spool.file == nil
	}
	return p.text, p.text != nil
}

// reader reads the payload from its beginning.
func (p *payload) reader() io.Reader {
	src, err := p.coding.Decode(p.spool.reader())
	if err != nil {
		return failing{err}
	}
	return src
}

// failing is a reader that says why there is nothing to read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// bytes is the whole payload, in memory of its own if it isn't in any. A slot, until it is
// freed, bounds how many of those there are at a time.
func (h *handler) bytes(r *http.Request, p *payload) (text []byte, free func(), err error) {
	if text, ok := p.short(); ok {
		return text, func() {}, nil
	}
	if free, err = h.slot(r); err != nil {
		return nil, func() {}, err
	}
	text = make([]byte, p.size)
	if _, err := io.ReadFull(p.reader(), text); err != nil {
		return nil, free, errSpool
	}
	return text, free, nil
}

// slot waits for one of the slots for large bodies.
func (h *handler) slot(r *http.Request) (free func(), err error) {
	select {
	case h.guard.large <- struct{}{}:
		return func() { <-h.guard.large }, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// samePayload recognizes fingerprints of the request that versions before made. Those digested
// a body with a coding as it came, and a payload with the key in it. It is nil if there are no
// such.
func (h *handler) samePayload(r *http.Request, sc *scratch) func(semel.Fingerprint) bool {
	if !coded(r.Header) && !h.picks.keyless() {
		return nil
	}
	var last semel.Fingerprint // what was asked about last
	var same bool
	return func(first semel.Fingerprint) bool {
		if first == last {
			return same
		}
		last, same = first, false
		if first.Scheme()&store.SchemeKeyless != 0 {
			return false
		}
		var ways []payload
		if h.picks.keyless() {
			ways = append(ways, sc.payload)
		}
		if coded(r.Header) {
			ways = append(ways, payload{spool: &sc.spool, mode: BodyRaw, size: sc.spool.size})
		}
		for i := range ways {
			fp, err := h.digest(r, &ways[i], sc, nil)
			same = same || err == nil && fp == first
		}
		return same
	}
}

// spoolFault is an error of reading the spool, and nil for one of decoding what it has.
func spoolFault(err error) error {
	if errors.Is(err, errSpool) {
		return err
	}
	return nil
}
