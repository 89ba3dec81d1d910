package webhook

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/inbox"
)

// Delivery is one request of a sender, as received.
type Delivery struct {
	Header http.Header
	Body   []byte
	// Query is the query of its address, without the question mark.
	Query string

	sent []byte // the encoded body, if the sender signed that
}

// signed returns the body that the sender signed.
func (d *Delivery) signed() []byte {
	if d.sent != nil {
		return d.sent
	}
	return d.Body
}

// Why a delivery isn't accepted, or an event can't be handled.
type (
	// Code is the stable name of a reason.
	Code = inbox.Code
	// Refusal is the reason. Another delivery of the same bytes would be refused again,
	// unless a clock or a secret was wrong.
	Refusal = inbox.Refusal
	// Later is an error of [Receiver.Work] that says when to try again.
	Later = inbox.Later
)

// The codes.
const (
	CodeSignatureMissing   Code = "signature_missing"
	CodeSignatureMalformed Code = "signature_malformed"
	CodeSignatureWrong     Code = "signature_wrong"
	CodeTimestampMalformed Code = "timestamp_malformed"
	CodeTooOld             Code = "too_old"
	CodeTooNew             Code = "too_new"
	CodeUnreadable         Code = inbox.CodeUnreadable
	CodeUnidentified       Code = "unidentified"
)

// Verifier verifies the deliveries of one source and finds their events. It keeps no
// state; its methods may be called concurrently.
type Verifier struct {
	source    *Source
	keys      []secret
	url       string
	endpoint  string
	tolerance time.Duration
	now       func() time.Time
	maxBody   int64 // bounds a decoded body
}

// VerifierOptions configure a [Verifier].
type VerifierOptions struct {
	// Source says how deliveries are signed. Required.
	Source *Source
	// Secrets, public keys or certificates, as the sender writes them: one, or two while one
	// replaces the other. Required.
	Secrets []string
	// URL is the address that the sender posts to. Required if the sender signs it.
	URL string
	// Endpoint is the sender's name for that address, such as PayPal's webhook id. Required if
	// the sender signs it.
	Endpoint string
	// Tolerance is how far a delivery's time may be from now. Defaults to the source's.
	Tolerance time.Duration
	// Now is the clock. Defaults to [time.Now].
	Now func() time.Time
}

// minSecret is the shortest secret that is accepted, in bytes.
const minSecret = 8

// maxSecrets is how many secrets can be in use at once: the new one and the previous one.
const maxSecrets = 2

// maxSignatures bounds how many signatures of a delivery the verifier tries. Senders send one
// for each secret in rotation.
const maxSignatures = 8

// NewVerifier makes a verifier. The error reports all problems with the options, but no
// secrets.
func NewVerifier(opts VerifierOptions) (*Verifier, error) {
	s := opts.Source
	if s == nil {
		return nil, errors.New("webhook: Source is missing")
	}
	v := &Verifier{source: s, url: opts.URL, endpoint: opts.Endpoint, tolerance: cmp.Or(opts.Tolerance, time.Duration(s.Timestamp.Tolerance)), now: opts.Now, maxBody: DefaultMaxBody}
	if v.now == nil {
		v.now = time.Now
	}
	var errs faults
	errs.need(len(opts.Secrets) > 0 && len(opts.Secrets) <= maxSecrets, "%d secrets for %s, not one, or two during a rotation", len(opts.Secrets), s.Name)
	errs.need(opts.Tolerance >= 0, "Tolerance is negative")
	errs.need(!uses([]template{s.signed}, "url") || opts.URL != "", "%s signs the URL that it posts to, and URL is missing", s.Name)
	errs.need(!uses([]template{s.signed}, "endpoint") || opts.Endpoint != "", "%s signs what it calls the address, and Endpoint is missing", s.Name)
	for i, text := range opts.Secrets {
		key, err := s.Signature.key(text)
		errs.need(err == nil, "secret %d of %s: %w", i+1, s.Name, err)
		v.keys = append(v.keys, key)
	}
	return v, errors.Join(errs...)
}

// faults are problems with options.
type faults []error

// need adds a fault unless ok.
func (f *faults) need(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf("webhook: "+format, args...))
	}
}

// Verify checks a delivery and returns its events. It checks first the signature, over the
// received bytes or, if the source says so, the decoded ones, and then the signed time. The
// error is a [*Refusal].
func (v *Verifier) Verify(d *Delivery) ([]Event, error) {
	d, err := v.Decode(d)
	if err != nil {
		return nil, err
	}
	events, err := v.eventsOf(d)
	return events, v.named(d, err)
}

// eventsOf is Verify for a decoded delivery.
func (v *Verifier) eventsOf(d *Delivery) ([]Event, error) {
	if !v.source.perEvent() {
		if err := v.verify(v.view(d)); err != nil {
			return nil, err
		}
		return v.events(d)
	}
	events, err := v.events(d)
	if err == nil && len(events) == 0 {
		err = inbox.Refuse(CodeSignatureMissing, "the body has no event, so nothing is signed")
	}
	if err != nil {
		return nil, err
	}
	// The body as a whole isn't signed. If a name came twice, a handler could read another
	// value than the checked one.
	if _, err := semel.FingerprintJSON(d.Body); err != nil {
		return nil, inbox.Refuse(CodeUnreadable, "the body is not JSON, or is ambiguous")
	}
	return events, nil
}

// Check verifies a delivery, like Verify, but leaves finding its events to the caller, who gets
// it from Decode. It is for sources with the signature in a header.
func (v *Verifier) Check(d *Delivery) error {
	d, err := v.Decode(d)
	if err != nil {
		return err
	}
	return v.named(d, v.verify(v.view(d)))
}

func (v *Verifier) view(d *Delivery) *view { return v.source.view(d, v.url, v.endpoint) }

// verify checks one signature and the time.
func (v *Verifier) verify(at *view) error {
	given, err := v.signatures(at)
	if err != nil {
		return err
	}
	signed, err := at.bytes(v.source.signed)
	if err == nil {
		err = v.source.separate(at)
	}
	if err != nil {
		return &Refusal{Code: CodeSignatureMalformed, Err: err}
	}
	if !v.signedBy(given, signed) {
		return inbox.Refuse(CodeSignatureWrong, "none of the secrets made the signature of these bytes")
	}
	return v.timely(at)
}

// separate returns an error if the signed bytes could be read in two ways: separators divide
// fields, so a separator in a field would let somebody move the rest of that field into the next.
// One field may contain some, as Free says: if the others contain none, there is only one way.
func (s *Source) separate(at *view) error {
	if !s.perEvent() {
		return nil
	}
	for _, field := range s.signed {
		if field.place == nil || field.place.kind != "json" || field.place.text == s.free {
			continue
		}
		value, err := at.value(field.place)
		if err != nil {
			return err
		}
		for _, by := range s.signed {
			if by.literal != "" && strings.Contains(value, by.literal) {
				return fmt.Errorf("{%s} has a %q, which stands between what is signed", field.place.text, by.literal)
			}
		}
	}
	return nil
}

// signedBy reports whether one of the keys made one of the signatures. It tries all pairs, so
// that the time it takes doesn't reveal which.
func (v *Verifier) signedBy(given [][]byte, signed []byte) bool {
	found := false
	for _, key := range v.keys {
		for _, sum := range given {
			if v.source.Signature.made(sum, &key, signed) && !key.ended(v.now()) {
				found = true
			}
		}
	}
	return found
}

// timely checks when a delivery was signed. Its signature is verified, so the time comes from
// the sender.
func (v *Verifier) timely(at *view) error {
	if v.source.stamp == nil {
		return nil
	}
	text, err := at.fill(v.source.stamp)
	if err != nil {
		return &Refusal{Code: CodeTimestampMalformed, Err: err}
	}
	made, err := v.source.Timestamp.parse(text)
	if err != nil {
		return inbox.Refuse(CodeTimestampMalformed, "the time of the signature is not %s", timeUnits[v.source.Timestamp.Unit])
	}
	switch age := v.now().Sub(made); {
	case age > v.tolerance:
		return inbox.Refuse(CodeTooOld, "it was signed %v ago, and %v are allowed: an old delivery was sent again, or a clock is wrong", age.Round(time.Second), v.tolerance)
	case age < -v.tolerance:
		return inbox.Refuse(CodeTooNew, "it was signed %v from now, and %v are allowed: a clock is wrong", (-age).Round(time.Second), v.tolerance)
	}
	return nil
}

// timeUnits are the forms of a time.
var timeUnits = map[string]string{"s": "seconds since 1970", "ms": "milliseconds since 1970", "rfc3339": "such as 2026-01-02T03:04:05Z"}

// parse reads a time.
func (t *Timestamp) parse(text string) (time.Time, error) {
	if t.Unit == "rfc3339" {
		return time.Parse(time.RFC3339, text)
	}
	n, err := strconv.ParseUint(text, 10, 50)
	if t.Unit == "ms" {
		return time.UnixMilli(int64(n)), err
	}
	return time.Unix(int64(n), 0), err
}

// format writes a time.
func (t *Timestamp) format(at time.Time) string {
	switch t.Unit {
	case "ms":
		return strconv.FormatInt(at.UnixMilli(), 10)
	case "rfc3339":
		return at.UTC().Format(time.RFC3339)
	}
	return strconv.FormatInt(at.Unix(), 10)
}
