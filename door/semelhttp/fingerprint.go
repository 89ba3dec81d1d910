package semelhttp

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

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/selector"
	"github.com/semelhq/semel/store"
)

// BodyMode says when two bodies are the same.
type BodyMode string

// The body modes. A body that isn't what its mode expects, such as broken JSON or an
// object with a member twice, is compared byte for byte; so is one with more than 1,000
// pairs or parts, or a part with more than 20 lines of headers. Bodies compared in
// different ways are never the same.
//
// A body with the Content-Encoding gzip or deflate is compared decoded, as the program sees
// it: compressed or not, it is the same. If it isn't exactly one such stream, or gets longer
// than Route.MaxBody, it is compared byte for byte as it came.
const (
	// BodyAuto chooses by Content-Type: JSON, forms and multipart by meaning,
	// everything else byte for byte.
	BodyAuto BodyMode = "auto"
	// BodyRaw compares bytes.
	BodyRaw BodyMode = "raw"
	// BodyJSON compares JSON texts by meaning: order of members, white space and spelling
	// of numbers and strings don't matter.
	BodyJSON BodyMode = "json"
	// BodyForm compares name-value pairs; only the order of values of one name
	// matters.
	BodyForm BodyMode = "form"
	// BodyMultipart compares the parts in their order, with their headers,
	// whatever the boundary between them.
	BodyMultipart BodyMode = "multipart"
)

var bodyModes = []BodyMode{BodyAuto, BodyRaw, BodyJSON, BodyForm, BodyMultipart}

// fingerprintVersion begins everything that is digested. It changes with the rules below,
// so that an old digest shows as a conflict and not as a match.
const fingerprintVersion = "semel-http-1"

// partsVersion begins what is digested where only parts of JSON are compared.
const partsVersion = "semel-http-parts-1"

// bodyMode is the mode for one request on a route with a mode.
func bodyMode(mode BodyMode, header http.Header) BodyMode {
	if mode != BodyAuto {
		return mode
	}
	var media string
	if types := header["Content-Type"]; len(types) > 0 {
		media = mediaOf(types[0])
	}
	switch {
	case isJSON(media):
		return BodyJSON
	case strings.EqualFold(media, "application/x-www-form-urlencoded"):
		return BodyForm
	case strings.EqualFold(media, "multipart/form-data"), strings.EqualFold(media, "multipart/mixed"):
		return BodyMultipart
	}
	return BodyRaw
}

// mediaOf is a media type without its parameters.
func mediaOf(field string) string {
	media, _, _ := strings.Cut(field, ";")
	return strings.TrimRight(media, " \t")
}

func isJSON(media string) bool {
	return strings.EqualFold(media, "application/json") || hasSuffixFold(media, "+json")
}

func hasSuffixFold(s, suffix string) bool {
	return len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix)
}

// overrides are headers by which some servers replace the method of a request.
var overrides = [...]string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// MethodOverrides are headers by which some servers replace the method of a request.
func MethodOverrides() []string { return slices.Clone(overrides[:]) }

// appendTarget appends what is digested besides the body: the method, the path, the query
// and the declared headers. Every item is preceded by its length, so that none can
// imitate another. The host, which may be spelled in many ways, is part of it only if you
// declare it.
//
// places are those where the key is, which is no part of the payload.
func (h *handler) appendTarget(b []byte, r *http.Request, places []selector.Selector) []byte {
	if compared := h.picks.parts(); compared != nil {
		// Nothing else begins so: what is compared by parts never matches what isn't, or
		// is by other parts.
		b = compared.AppendFrame(append(b, partsVersion...))
	}
	b = append(b, fingerprintVersion...)
	b = canon.Frame(b, r.Method)
	b = canon.Frame(b, targetPath(r))
	b = appendPairs(b, r.URL.RawQuery, places)
	for _, name := range overrides {
		b = canon.FrameList(b, r.Header[name])
	}
	for _, name := range h.route.FingerprintHeaders {
		if slices.ContainsFunc(places, func(s selector.Selector) bool { return s.Source == selector.Header && s.Name == name }) {
			continue
		}
		if name == "Host" {
			b = canon.Frame(b, plainHost(r.Host))
			continue
		}
		b = canon.FrameList(b, r.Header[name])
	}
	return b
}

// plainHost is the name in a Host without its port, or nothing if it is only an address.
// If a caller goes to another node of a service, or to another port, that is still the
// same call.
func plainHost(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || host == "localhost" {
		return ""
	}
	return host
}

// targetPath is the path as the client sent it, which determines the matched route and
// the values in it. If something shortens the path before the guard, as
// [http.StripPrefix] does, the cut-off part still counts.
func targetPath(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		path, _, _ := strings.Cut(r.RequestURI, "?")
		return path
	}
	return r.URL.EscapedPath()
}

// appendPairs appends the pairs of a query, sorted by name, without those at the places.
// Pairs of one name keep their order, which may mean something. A text that is malformed or
// has too many is appended as it is.
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

// without is the pairs of a source without those at the places. An empty value is no key.
func without(pairs []pair, source selector.Source, places []selector.Selector) []pair {
	if len(places) == 0 {
		return pairs
	}
	return slices.DeleteFunc(pairs, func(p pair) bool {
		return p.value != "" && slices.ContainsFunc(places, func(s selector.Selector) bool { return s.Source == source && s.Name == p.name })
	})
}

// maxPairs is how many pairs a query or form may have to be compared by them, for the
// reasons of [maxParts].
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

// fingerprint digests a request that was read. places are those in it where its key is.
func (h *handler) fingerprint(r *http.Request, sc *scratch, places []selector.Selector) (semel.Fingerprint, error) {
	fp, err := h.digest(r, &sc.payload, sc, places)
	if err == nil && h.picks.keyless() {
		fp = fp.WithScheme(fp.Scheme() | store.SchemeKeyless)
	}
	return fp, err
}

// digest digests the request with this payload, but for the places.
func (h *handler) digest(r *http.Request, p *payload, sc *scratch, places []selector.Selector) (semel.Fingerprint, error) {
	if p.sum != nil {
		return store.NewFingerprint(semel.SchemeRaw, [32]byte(p.sum.Sum(nil))), nil
	}
	sc.digest = h.appendTarget(sc.digest[:0], r, places)
	if text, ok := p.short(); ok {
		return h.digestText(r, p.mode, text, sc, places), nil
	}
	if p.mode == BodyJSON || p.mode == BodyForm { // they can't be parsed in pieces
		text, free, err := h.bytes(r, p)
		defer free()
		if err != nil {
			return semel.Fingerprint{}, err
		}
		fp := h.digestText(r, p.mode, text, sc, places)
		sc.digest = nil // too large to keep
		return fp, nil
	}
	if p.coding != body.Plain {
		free, err := h.slot(r)
		if err != nil {
			return semel.Fingerprint{}, err
		}
		defer free()
	}
	if p.mode == BodyMultipart {
		if b, ok := appendMultipart(sc.digest, r.Header, p.reader); ok {
			return store.NewFingerprint(semel.SchemeParts, sha256.Sum256(b)), nil
		}
	}
	sum := sha256.New()
	sum.Write(sc.digest)
	if _, err := io.Copy(sum, p.reader()); err != nil {
		return semel.Fingerprint{}, errSpool
	}
	return store.NewFingerprint(semel.SchemeRaw, [32]byte(sum.Sum(nil))), nil
}

// maxScratch is up to which length of a body its canonical form is made in reused memory.
// A longer one could be many times the body, and goes to the hash as it is made.
const maxScratch = 64 << 10

// digestText digests a payload that is in memory. sc.digest has the target.
func (h *handler) digestText(r *http.Request, mode BodyMode, text []byte, sc *scratch, places []selector.Selector) semel.Fingerprint {
	target := len(sc.digest)
	switch mode {
	case BodyJSON:
		if sum, ok := h.digestJSON(text, sc, places); ok {
			return store.NewFingerprint(semel.SchemeJSON, sum)
		}
	case BodyForm:
		if pairs, ok := parsePairs(string(text)); ok {
			pairs = without(pairs, selector.Form, places)
			sc.digest = slices.Grow(sc.digest, len(text)+2*binary.MaxVarintLen64*len(pairs))
			for _, p := range pairs {
				sc.digest = canon.Frame(canon.Frame(sc.digest, p.name), p.value)
			}
			return store.NewFingerprint(semel.SchemeForm, sha256.Sum256(sc.digest))
		}
	case BodyMultipart:
		if b, ok := appendMultipart(sc.digest, r.Header, func() io.Reader { return bytes.NewReader(text) }); ok {
			sc.digest = b
			return store.NewFingerprint(semel.SchemeParts, sha256.Sum256(b))
		}
	}
	sc.digest = append(sc.digest[:target], text...)
	return store.NewFingerprint(semel.SchemeRaw, sha256.Sum256(sc.digest))
}

// digestJSON digests what is compared of a JSON text after the target. It reports false if
// the text isn't JSON, or has a name twice.
func (h *handler) digestJSON(text []byte, sc *scratch, places []selector.Selector) (sum [sha256.Size]byte, ok bool) {
	inJSON := slices.ContainsFunc(places, selector.Selector.InJSON)
	switch compared := h.picks.parts(); {
	case compared != nil, inJSON:
		doc, err := canon.Canonicalize(text, canon.Exact)
		if err != nil {
			return sum, false
		}
		for _, s := range places {
			doc = s.Cut(doc)
		}
		if compared != nil {
			sc.digest = compared.Append(sc.digest, doc)
			return sha256.Sum256(sc.digest), true
		}
		h := sha256.New()
		h.Write(sc.digest)
		h.Write(doc)
		return [32]byte(h.Sum(nil)), true
	case len(text) > maxScratch:
		h := sha256.New()
		h.Write(sc.digest)
		err := canon.Write(h, text, canon.Exact)
		return [32]byte(h.Sum(nil)), err == nil
	}
	b, err := canon.Append(sc.digest, text, canon.Exact)
	if err != nil {
		return sum, false
	}
	sc.digest = b
	return sha256.Sum256(b), true
}
