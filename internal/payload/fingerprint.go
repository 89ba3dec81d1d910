package payload

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/selector"
	"github.com/semelhq/semel/store"
)

// fingerprintVersion begins everything that is digested. It changes with the rules below, so
// that an old digest shows as a conflict and not as a match.
const fingerprintVersion = "semel-http-1"

// partsVersion begins a digest of some parts of JSON.
const partsVersion = "semel-http-parts-1"

// Overrides are headers that replace the method of a request on some servers.
var Overrides = [...]string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// Places says where a request's payload has values that name its call.
type Places struct {
	Key []selector.Selector // these places hold the key, and aren't compared
	// Made are the JSON values that the key was made of. They are compared in the key's form, so that
	// two payloads never differ by something that makes no difference to their key (MAP-CART.5).
	Made []selector.Selector
}

// appendTarget appends everything to compare except the body: the method, the path, the query
// and the declared headers. Every item is preceded by its length, so that none can imitate
// another. The host has many spellings, so it counts only if declared.
//
// The key, which is at the places, isn't part of the payload.
func (p *Payload) appendTarget(b []byte, places []selector.Selector) []byte {
	r := p.r
	if compared := p.rule.Parts; compared != nil {
		// Nothing else begins like this: a comparison of parts never matches one of the whole,
		// or of other parts.
		b = compared.AppendFrame(append(b, partsVersion...))
	}
	b = append(b, fingerprintVersion...)
	b = canon.Frame(b, r.Method)
	b = canon.Frame(b, Path(r))
	b = appendPairs(b, r.URL.RawQuery, places)
	for _, name := range Overrides {
		b = canon.FrameList(b, r.Header[name])
	}
	for _, name := range p.rule.Headers {
		if slices.ContainsFunc(places, func(s selector.Selector) bool { return s.Source == selector.Header && s.Name == name }) {
			continue
		}
		if name == "Host" {
			b = canon.Frame(b, Host(r))
			continue
		}
		b = canon.FrameList(b, r.Header[name])
	}
	return b
}

// Host returns the name in a request's Host without its port, or nothing if it is just an
// address. If a caller uses another node of a service, or another port, that is still the same
// call.
func Host(r *http.Request) string {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || host == "localhost" {
		return ""
	}
	return host
}

// Path returns the path as the client sent it, which determines the matched route and the
// values in it. If something shortens the path before the guard, like [http.StripPrefix], the
// part cut off still counts.
func Path(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		path, _, _ := strings.Cut(r.RequestURI, "?")
		return path
	}
	return r.URL.EscapedPath()
}

// appendPairs appends the pairs of a query, sorted by name, without those at the places. Pairs
// with the same name keep their order, which may matter. A text that is malformed or has too
// many pairs is appended unchanged.
func appendPairs(b []byte, text string, places []selector.Selector) []byte {
	if text == "" {
		return binary.AppendUvarint(b, 0)
	}
	pairs, ok := parsePairs(text)
	if !ok {
		// No list of pairs has this length.
		b = binary.AppendUvarint(b, 1<<63)
		return canon.Frame(b, text)
	}
	pairs = without(pairs, selector.Query, places)
	b = binary.AppendUvarint(b, uint64(len(pairs)))
	for _, p := range pairs {
		b = canon.Frame(b, p.name)
		b = canon.Frame(b, p.value)
	}
	return b
}

type pair struct{ name, value string }

// without returns the pairs of a source without those at the places. An empty value isn't a key.
func without(pairs []pair, source selector.Source, places []selector.Selector) []pair {
	if len(places) == 0 {
		return pairs
	}
	return slices.DeleteFunc(pairs, func(p pair) bool {
		return p.value != "" && slices.ContainsFunc(places, func(s selector.Selector) bool { return s.Source == source && s.Name == p.name })
	})
}

// maxPairs is how many pairs a query or form may have to be compared by its pairs, for the same
// reasons as [maxParts].
const maxPairs = 1000

func parsePairs(text string) ([]pair, bool) {
	pairs := make([]pair, 0, min(strings.Count(text, "&")+1, maxPairs))
	for item := range strings.SplitSeq(text, "&") {
		if item == "" {
			continue
		}
		if len(pairs) == maxPairs {
			return nil, false
		}
		name, value, _ := strings.Cut(item, "=")
		var err1, err2 error
		name, err1 = url.QueryUnescape(name)
		value, err2 = url.QueryUnescape(value)
		if err1 != nil || err2 != nil {
			return nil, false
		}
		pairs = append(pairs, pair{name, value})
	}
	slices.SortStableFunc(pairs, func(x, y pair) int { return strings.Compare(x.name, y.name) })
	return pairs, true
}

// Fingerprint digests the request; places say where it names its call.
func (p *Payload) Fingerprint(places Places) (store.Fingerprint, error) {
	fp, err := p.fingerprint(places)
	if err == nil && p.rule.Keyless {
		fp = fp.WithScheme(fp.Scheme() | store.SchemeKeyless)
	}
	return fp, err
}

func (p *Payload) fingerprint(places Places) (store.Fingerprint, error) {
	if p.sum != nil {
		return store.NewFingerprint(store.SchemeRaw, [32]byte(p.sum.Sum(nil))), nil
	}
	p.digest = p.appendTarget(p.digest[:0], places.Key)
	if text, ok := p.short(); ok {
		return p.ofText(text, places), nil
	}
	if p.mode == JSON || p.mode == Form { // they can't be parsed in pieces
		text, free, err := p.Bytes()
		defer free()
		if err != nil {
			return store.Fingerprint{}, err
		}
		fp := p.ofText(text, places)
		p.digest = nil // too large to keep
		return fp, nil
	}
	if p.coding != body.Plain {
		free, err := p.slot()
		if err != nil {
			return store.Fingerprint{}, err
		}
		defer free()
	}
	if p.mode == Multipart {
		if b, ok := appendMultipart(p.digest, p.r.Header, p.reader); ok {
			return store.NewFingerprint(store.SchemeParts, sha256.Sum256(b)), nil
		}
	}
	sum := sha256.New()
	sum.Write(p.digest)
	if _, err := io.Copy(sum, p.reader()); err != nil {
		return store.Fingerprint{}, ErrSpool
	}
	return store.NewFingerprint(store.SchemeRaw, [32]byte(sum.Sum(nil))), nil
}

// maxScratch is the longest JSON text that gets its canonical form in reused memory. A longer
// one's form could be many times its length, and goes to the hash piece by piece.
const maxScratch = 64 << 10

// ofText digests a payload in memory, after the target in p.digest.
func (p *Payload) ofText(text []byte, places Places) store.Fingerprint {
	target := len(p.digest)
	switch p.mode {
	case JSON:
		if sum, ok := p.ofJSON(text, places); ok {
			if len(places.Made) > 0 {
				return store.NewFingerprint(store.SchemeJSON|store.SchemeRestated, sum)
			}
			return store.NewFingerprint(store.SchemeJSON, sum)
		}
	case Form:
		if pairs, ok := parsePairs(string(text)); ok {
			pairs = without(pairs, selector.Form, places.Key)
			p.digest = slices.Grow(p.digest, len(text)+2*binary.MaxVarintLen64*len(pairs))
			for _, pair := range pairs {
				p.digest = canon.Frame(canon.Frame(p.digest, pair.name), pair.value)
			}
			return store.NewFingerprint(store.SchemeForm, sha256.Sum256(p.digest))
		}
	case Multipart:
		if b, ok := appendMultipart(p.digest, p.r.Header, func() io.Reader { return bytes.NewReader(text) }); ok {
			p.digest = b
			return store.NewFingerprint(store.SchemeParts, sha256.Sum256(b))
		}
	}
	p.digest = append(p.digest[:target], text...)
	return store.NewFingerprint(store.SchemeRaw, sha256.Sum256(p.digest))
}

// ofJSON digests the compared parts of a JSON text after the target. It reports false if the
// text isn't JSON, or repeats a name.
func (p *Payload) ofJSON(text []byte, places Places) (sum [sha256.Size]byte, ok bool) {
	hashed := func(write func(io.Writer) error) ([sha256.Size]byte, bool) {
		h := sha256.New()
		h.Write(p.digest)
		err := write(h)
		return [sha256.Size]byte(h.Sum(nil)), err == nil
	}
	compared := p.rule.Parts
	switch {
	case compared != nil || len(places.Made) > 0 || slices.ContainsFunc(places.Key, selector.Selector.InJSON):
		doc, err := canon.Canonicalize(text, canon.Exact)
		if err != nil {
			return sum, false
		}
		for _, s := range places.Key {
			doc = s.Cut(doc)
		}
		doc = selector.Restate(doc, places.Made)
		if compared == nil {
			return hashed(func(w io.Writer) error { _, err := w.Write(doc); return err })
		}
		p.digest = compared.Append(p.digest, doc)
	case len(text) > maxScratch:
		return hashed(func(w io.Writer) error { return canon.Write(w, text, canon.Exact) })
	default:
		b, err := canon.Append(p.digest, text, canon.Exact)
		if err != nil {
			return sum, false
		}
		p.digest = b
	}
	return sha256.Sum256(p.digest), true
}
