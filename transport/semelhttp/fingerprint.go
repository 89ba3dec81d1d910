package semelhttp

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/store"
)

// BodyMode says when two bodies are the same.
type BodyMode string

// The body modes. A body that isn't what its mode expects, such as broken JSON or an
// object with a member twice, is compared byte for byte; so is one with a
// Content-Encoding, with more than 1,000 pairs or parts, or a part with more than 20 lines
// of headers. Bodies compared in different ways are never the same.
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
	if mode == BodyRaw || len(header["Content-Encoding"]) > 0 {
		return BodyRaw
	}
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

// appendTarget appends what is digested besides the body: the method, the path, the query
// and the declared headers. Every item is preceded by its length, so that none can
// imitate another. The host, which may be spelled in many ways, is part of it only if you
// declare it.
func (h *handler) appendTarget(b []byte, r *http.Request) []byte {
	if h.picks != nil && h.picks.compared != nil {
		// Nothing else begins so: what is compared by parts never matches what isn't, or
		// is by other parts.
		b = h.picks.compared.AppendFrame(append(b, partsVersion...))
	}
	b = append(b, fingerprintVersion...)
	b = canon.Frame(b, r.Method)
	b = canon.Frame(b, targetPath(r))
	b = appendPairs(b, r.URL.RawQuery)
	for _, name := range overrides {
		b = appendValues(b, r.Header[name])
	}
	for _, name := range h.route.FingerprintHeaders {
		if name == "Host" {
			b = canon.Frame(b, plainHost(r.Host))
			continue
		}
		b = appendValues(b, r.Header[name])
	}
	return b
}

func appendValues(b []byte, values []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(values)))
	for _, v := range values {
		b = canon.Frame(b, v)
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

// appendPairs appends the pairs of a query or form, sorted by name. Pairs of one name
// keep their order, which may mean something. A text that is malformed or has too many is
// appended as it is.
func appendPairs(b []byte, text string) []byte {
	if text == "" {
		return binary.AppendUvarint(b, 0)
	}
	pairs, ok := parsePairs(text)
	if !ok {
		// No list of pairs has this length.
		b = binary.AppendUvarint(b, 1<<63)
		return canon.Frame(b, text)
	}
	b = binary.AppendUvarint(b, uint64(len(pairs)))
	for _, p := range pairs {
		b = canon.Frame(b, p.name)
		b = canon.Frame(b, p.value)
	}
	return b
}

type pair struct{ name, value string }

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

// take reads the whole body and digests the request. Nothing is claimed yet, so a body
// that ends early costs nothing.
func (h *handler) take(r *http.Request, sc *scratch) (semel.Fingerprint, error) {
	var fp semel.Fingerprint
	s := &sc.spool
	mode := bodyMode(h.route.Body, r.Header)
	sc.digest = h.appendTarget(sc.digest[:0], r)
	if r.Body == nil || r.Body == http.NoBody {
		return store.NewFingerprint(semel.SchemeRaw, sha256.Sum256(sc.digest)), nil
	}
	if r.ContentLength > h.route.MaxBody {
		return fp, errTooLarge
	}
	var sum hash.Hash
	if mode == BodyRaw && (r.ContentLength < 0 || r.ContentLength > spoolLimit) {
		sum = sha256.New()
		sum.Write(sc.digest)
	}
	if want := max(min(r.ContentLength+1, spoolLimit+1), 512); want > int64(cap(sc.body)) {
		sc.body = make([]byte, 0, want)
	}
	var err error
	sc.body, err = s.fill(r.Body, sc.body[:0], h.route.MaxBody, h.guard.opts.TempDir, sum)
	if err != nil {
		return fp, err
	}
	if sum != nil {
		return store.NewFingerprint(semel.SchemeRaw, [32]byte(sum.Sum(nil))), nil
	}
	if s.file != nil {
		return h.digestLarge(r, mode, s, sc)
	}
	return h.digestSmall(r, mode, s.data, sc), nil
}

// maxScratch is up to which length of a body its canonical form is made in reused memory.
// A longer one could be many times the body, and goes to the hash as it is made.
const maxScratch = 64 << 10

// digestSmall digests a body that is in memory.
func (h *handler) digestSmall(r *http.Request, mode BodyMode, body []byte, sc *scratch) semel.Fingerprint {
	target := len(sc.digest)
	switch mode {
	case BodyJSON:
		if h.picks != nil && h.picks.compared != nil {
			if doc, err := canon.Canonicalize(body, canon.Exact); err == nil {
				sc.digest = h.picks.compared.Append(sc.digest, doc)
				return store.NewFingerprint(semel.SchemeJSON, sha256.Sum256(sc.digest))
			}
		} else if len(body) > maxScratch {
			sum := sha256.New()
			sum.Write(sc.digest)
			if canon.Write(sum, body, canon.Exact) == nil {
				return store.NewFingerprint(semel.SchemeJSON, [32]byte(sum.Sum(nil)))
			}
		} else if b, err := canon.Append(sc.digest, body, canon.Exact); err == nil {
			sc.digest = b
			return store.NewFingerprint(semel.SchemeJSON, sha256.Sum256(b))
		}
	case BodyForm:
		if pairs, ok := parsePairs(string(body)); ok {
			sc.digest = slices.Grow(sc.digest, len(body)+2*binary.MaxVarintLen64*len(pairs))
			for _, p := range pairs {
				sc.digest = canon.Frame(canon.Frame(sc.digest, p.name), p.value)
			}
			return store.NewFingerprint(semel.SchemeForm, sha256.Sum256(sc.digest))
		}
	case BodyMultipart:
		if b, ok := appendMultipart(sc.digest, r.Header, func() io.Reader { return bytes.NewReader(body) }); ok {
			sc.digest = b
			return store.NewFingerprint(semel.SchemeParts, sha256.Sum256(b))
		}
	}
	sc.digest = append(sc.digest[:target], body...)
	return store.NewFingerprint(semel.SchemeRaw, sha256.Sum256(sc.digest))
}

// digestLarge digests a body that is partly in a file.
func (h *handler) digestLarge(r *http.Request, mode BodyMode, s *spool, sc *scratch) (semel.Fingerprint, error) {
	switch mode {
	case BodyMultipart:
		if b, ok := appendMultipart(sc.digest, r.Header, s.reader); ok {
			return store.NewFingerprint(semel.SchemeParts, sha256.Sum256(b)), nil
		}
	case BodyJSON, BodyForm:
		text, free, err := h.text(r, s) // they can't be parsed in pieces
		defer free()
		if err != nil {
			return semel.Fingerprint{}, err
		}
		fp := h.digestSmall(r, mode, text, sc)
		sc.digest = nil // too large to keep
		return fp, nil
	}
	sum := sha256.New()
	sum.Write(sc.digest)
	if _, err := io.Copy(sum, s.reader()); err != nil {
		return semel.Fingerprint{}, errSpool
	}
	return store.NewFingerprint(semel.SchemeRaw, [32]byte(sum.Sum(nil))), nil
}
