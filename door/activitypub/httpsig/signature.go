package httpsig

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// The forms of signatures.
const (
	FormRFC9421 = "rfc9421"
	FormCavage  = "cavage"
)

// Bounds of signatures. Real signatures cover seven components, and the longest keys make
// signatures of 1 KiB.
const (
	maxSignatures = 4       // of one request
	maxComponents = 64      // of one signature
	maxHeader     = 8 << 10 // bytes of all fields with signatures
)

// A signature is a signature that was read but not yet verified.
type signature struct {
	form      string
	keyID     string
	algorithm string // empty if it names none
	value     []byte
	covers    []string // names of components, in lower case and in the form's spelling
	created   int64    // seconds since 1970, 0 if it isn't signed
	expires   int64    // 0 if there is none
	text      []byte   // what was signed
}

func (s *signature) has(component string) bool { return slices.Contains(s.covers, component) }

// sufficient checks that the signature covers everything that a forger could otherwise change.
func (s *signature) sufficient(q *request, withBody bool) error {
	var missing string
	digest := "content-digest"
	if s.form == FormCavage {
		digest = "digest"
		switch {
		case !s.has("(request-target)"):
			missing = "(request-target)"
		case !s.has("host"):
			missing = "host"
		}
	} else {
		switch {
		case !s.has("@method"):
			missing = "@method"
		case s.has("@target-uri"):
		case !s.has("@authority") && !s.has("host"):
			missing = "@target-uri or @authority"
		case s.has("@request-target"):
		case !s.has("@path"):
			missing = "@target-uri or @path"
		case !s.has("@query") && strings.Contains(q.target, "?"):
			missing = "@target-uri or @query"
		}
	}
	switch {
	case missing != "":
	case withBody && !s.has(digest):
		missing = digest
	case s.created == 0 && !s.has("date"):
		missing = "created or date"
	}
	if missing != "" {
		return refuse(SignatureWeak, "the signature does not cover %s", missing)
	}
	return nil
}

// timely checks every signed time: if times contradict each other, one of them shows that the
// signature isn't recent.
func (s *signature) timely(header http.Header, now time.Time, age, skew time.Duration) error {
	var times []time.Time
	if s.created != 0 {
		times = append(times, time.Unix(s.created, 0))
	}
	if s.has("date") {
		if len(header["Date"]) != 1 {
			return refuse(SignatureMalformed, "the field Date must have one value")
		}
		at, err := http.ParseTime(header["Date"][0])
		if err != nil {
			return refuse(SignatureMalformed, "the field Date is not a time")
		}
		times = append(times, at)
	}
	for _, at := range times {
		switch {
		case at.Before(now.Add(-age)):
			return refuse(TooOld, "the signature is of %s", at.UTC().Format(time.RFC3339))
		case at.After(now.Add(skew)):
			return refuse(TooNew, "the signature is of %s, which is yet to come", at.UTC().Format(time.RFC3339))
		}
	}
	if s.expires != 0 && !now.Before(time.Unix(s.expires, 0)) {
		return refuse(TooOld, "the signature expired at %s", time.Unix(s.expires, 0).UTC().Format(time.RFC3339))
	}
	return nil
}

// cover adds a component to the signed text. Naming a component twice makes a signature
// ambiguous.
func (s *signature) cover(name string) error {
	if s.has(name) {
		return refuse(SignatureMalformed, "a component is covered twice")
	}
	s.covers = append(s.covers, name)
	return nil
}

// absent returns the error for a covered field that is missing.
func absent() error {
	return refuse(SignatureWrong, "the signature covers a field that the request does not have")
}

// bounded checks the size of the fields before they are parsed.
func bounded(header http.Header) error {
	size := 0
	for _, name := range []string{"Signature", "Signature-Input"} {
		for _, v := range header[name] {
			size += len(v)
		}
	}
	if size > maxHeader {
		return refuse(SignatureMalformed, "the fields of signatures are longer than %d bytes", maxHeader)
	}
	return nil
}
