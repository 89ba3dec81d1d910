package forrst

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/safehttp"
	"github.com/semelhq/semel/store"
)

// IdempotencyURN names the idempotency extension. The spelling with the vendor,
// urn:cline:forrst:ext:idempotency, means the same extension.
const IdempotencyURN = "urn:forrst:ext:idempotency"

// maxKey is the longest key, in bytes.
const maxKey = 255

var keyForm = regexp.MustCompile(`^[A-Za-z0-9_:.-]{1,255}$`)

// The statuses of the extension's data (FOR-DATA.1).
const (
	statusProcessed  = "processed"
	statusCached     = "cached"
	statusProcessing = "processing" // even if the outcome is unknown
	statusConflict   = "conflict"
)

// Attributes of this door's records.
const (
	attributeRequest   = store.AttributeRequestID // of the first delivery
	attributeArguments = "arguments_hash"         // as shown in a conflict
)

// idempotency is the extension in a request.
type idempotency struct {
	Extension
	key string
	ttl time.Duration // zero: the operation's
}

// data is the extension in an answer.
type data struct {
	Key               string `json:"key"`
	Status            string `json:"status"`
	OriginalRequestID string `json:"original_request_id,omitempty"`
	CachedAt          string `json:"cached_at,omitempty"`
	ExpiresAt         string `json:"expires_at,omitempty"`
}

// parse reads the options. No ttl may be above longest (FOR-OPT.1).
func (x *idempotency) parse(longest time.Duration) (errs Errors) {
	at := []string{"extensions", strconv.Itoa(x.index), "options"}
	m, _ := members(x.Options)
	if len(m) > maxMembers {
		return one(InvalidArguments, At(at...), "The idempotency extension has only key and ttl")
	}
	for name := range m {
		if name != "key" && name != "ttl" {
			errs.add(InvalidArguments, At(append(at, name)...), "The idempotency extension has only key and ttl")
		}
	}
	key, ok := text(m["key"])
	switch {
	case m["key"] == nil:
		errs.add(InvalidArguments, At(append(at, "key")...), "Idempotency key is required")
	case !ok || !keyForm.MatchString(key):
		errs.add(InvalidArguments, At(append(at, "key")...), "An idempotency key has 1 to %d letters, digits and - _ : .", maxKey)
	}
	x.key = key
	if raw, given := m["ttl"]; given {
		ttl, wrong := parseTTL(raw, longest, append(at, "ttl")...)
		x.ttl, errs = ttl, append(errs, wrong...)
	}
	return errs
}

// call returns the delivery as the engine sees it. The scope has the function and the version
// in the request, so that the identity is hash(key + function + version) (FOR-STORE.1). A
// missing version isn't resolved first: a retry after the deployment of a newer one would be
// another call.
func (s *Service) call(r *Request, f *function) (semel.Call, error) {
	parts := [][]byte{r.canonical}
	for _, x := range r.Extensions {
		if !changing[shortName(x.URN)] {
			continue // such as tracing, which differs for every delivery
		}
		options := []byte("{}")
		if x.Options != nil {
			var err error
			if options, err = canon.Canonicalize(x.Options, canon.Exact); err != nil {
				return semel.Call{}, err
			}
		}
		parts = append(parts, []byte(shortName(x.URN)), options)
	}
	call := semel.Call{
		Operation: f.operation, Scope: r.Function + "@" + r.asked, Door: Name, Fingerprint: store.FingerprintOf(store.SchemeJSON, parts...),
	}
	if x := r.idempotency; x != nil {
		call.Key, call.Window = x.key, x.ttl
	} else {
		call.Key = safehttp.NewKey() // a call of its own
	}
	r.Caller.Name(&call, f.share)
	r.record = call.ID(f.share)
	call.Attributes = s.names.Of(store.Attributes{attributeRequest: r.ID, attributeArguments: s.argumentsHash(call.Tenant, r.canonical)}, f.Name, r.Header, r.canonical)
	return call, nil
}

// argumentsHash returns the hash of the first arguments for a conflict. Arguments can be
// guessed, amounts above all, so by default the hash has a key that callers don't know.
func (s *Service) argumentsHash(tenant string, args []byte) string {
	if s.opts.PlainHash {
		sum := sha256.Sum256(args)
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	mac := hmac.New(sha256.New, s.opts.HashKey)
	mac.Write(canon.Frame(nil, tenant))
	mac.Write(args)
	return "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil))
}

// timestamp returns an instant in the form of answers.
func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// data returns what an answer says about a record; nil if the request has no key.
func (r *Request) data(status string, rec *semel.Record) *data {
	if r.idempotency == nil {
		return nil
	}
	d := &data{Key: r.Key, Status: status, OriginalRequestID: rec.Attributes[attributeRequest]}
	if status == statusCached {
		d.CachedAt = timestamp(rec.EndedAt.Time())
	}
	if status == statusCached || status == statusProcessed {
		d.ExpiresAt = timestamp(rec.AnswerUntil().Time())
	}
	return d
}

// kept reports whether a duplicate would get the outcome.
func kept(rec *semel.Record) bool {
	d := rec.Disposition
	return d == semel.DispositionCompleted || d == semel.DispositionRejected ||
		d == semel.DispositionFailed && (len(rec.Result.Data) > 0 || rec.Result.Tombstone) // recorded only if it can be replayed
}
