package webhook

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Diagnosis is what Diagnose finds out about a captured delivery.
type Diagnosis struct {
	// Events of the delivery; nil if it is refused.
	Events []Event
	// Refusal says why it is refused; nil if it isn't.
	Refusal *Refusal
	// Hints say what probably went wrong, in sentences for people. They reveal neither secrets
	// nor correct signatures.
	Hints []string
}

// Diagnose verifies a delivery. If it is refused, Diagnose finds out why by trying the usual
// mistakes. secrets come from the verifier's options.
func (v *Verifier) Diagnose(d *Delivery, secrets []string) Diagnosis {
	events, err := v.Verify(d)
	refused, ok := errors.AsType[*Refusal](err)
	if !ok {
		return Diagnosis{Events: events}
	}
	out := Diagnosis{Refusal: refused}
	hint := func(format string, args ...any) { out.Hints = append(out.Hints, fmt.Sprintf(format, args...)) }
	switch refused.Code {
	case CodeSignatureWrong:
		for i := range v.keys {
			if c := v.keys[i].certificate; v.keys[i].ended(v.now()) {
				hint("The certificate of secret %d is valid from %s to %s.", i+1, c.NotBefore.Format(time.RFC3339), c.NotAfter.Format(time.RFC3339))
			}
		}
		v.diagnose(d, secrets, hint)
	case CodeSignatureMissing, CodeSignatureMalformed:
		if v.source.key.kind != "header" {
			break
		}
		for name := range d.Header {
			lower := strings.ToLower(name)
			if name != v.source.key.name && (strings.Contains(lower, "signature") || strings.Contains(lower, "hmac")) {
				hint("There is a header %s. Is it from another sender?", name)
			}
		}
	case CodeTooOld, CodeTooNew:
		hint("The signature itself is right.")
	}
	return out
}

// diagnose looks for a change of body, secret or address that makes the signature right.
func (v *Verifier) diagnose(d *Delivery, secrets []string, hint func(string, ...any)) {
	right := func(other *Verifier, body []byte) bool {
		_, err := other.Verify(&Delivery{Header: d.Header, Body: body, Query: d.Query})
		refused, is := errors.AsType[*Refusal](err)
		return err == nil || is && refused.Code != CodeSignatureWrong && refused.Code != CodeSignatureMalformed && refused.Code != CodeSignatureMissing
	}
	for _, c := range append(bodies(d.Body), v.decodings(d)...) {
		if !bytes.Equal(c.bytes, d.Body) && right(v, c.bytes) {
			hint("The signature is right for the body %s: %s.", c.what, c.why)
			return
		}
	}
	for i, text := range secrets {
		for _, c := range otherKeys(&v.source.Signature, text) {
			other := *v
			other.keys = []secret{{raw: c.bytes}}
			if right(&other, d.Body) {
				hint("The signature is right if secret %d %s.", i+1, c.what)
				return
			}
		}
	}
	if uses([]template{v.source.signed}, "url") {
		for _, url := range []string{strings.TrimSuffix(v.url, "/"), v.url + "/", strings.Replace(v.url, "https:", "http:", 1), strings.Replace(v.url, "http:", "https:", 1)} {
			other := *v
			other.url = url
			if right(&other, d.Body) {
				hint("The signature is right for the address %s.", url)
				return
			}
		}
		hint("The sender signs the address that it posts to: compare it with its settings, letter by letter.")
	}
	hint("Either the secret is that of another endpoint, or a byte of the body was changed on the way.")
}

// guess is a body or a key that was probably meant.
type guess struct {
	what, why string
	bytes     []byte
}

// bodies returns what a body may have been before it was saved or passed on.
func bodies(body []byte) []guess {
	const saved = "saving it changed it"
	list := []guess{
		{"without the line end behind it", saved, bytes.TrimRight(body, "\r\n")},
		{"with a line end behind it", saved, append(bytes.Clone(body), '\n')},
		{"with other line ends", saved, bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n"))},
		{"with other line ends", saved, bytes.ReplaceAll(body, []byte("\n"), []byte("\r\n"))},
		{"without the mark of its encoding", saved, bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))},
	}
	const parsed = "something on the way has parsed the JSON and written it anew"
	var compact, indented bytes.Buffer
	if json.Compact(&compact, body) == nil {
		list = append(list, guess{"without white space", parsed, compact.Bytes()})
		for _, indent := range []string{"  ", "    ", "\t"} {
			indented.Reset()
			_ = json.Indent(&indented, compact.Bytes(), "", indent) // it is JSON
			list = append(list, guess{"with white space", parsed, bytes.Clone(indented.Bytes())})
		}
		slashed := bytes.ReplaceAll(compact.Bytes(), []byte("/"), []byte(`\/`))
		list = append(list, guess{`with \/ for /`, parsed, slashed})
	}
	return list
}

// decodings returns what a compressed body may have been before, if its source doesn't allow
// any.
func (v *Verifier) decodings(d *Delivery) (list []guess) {
	for name := range codings {
		source, other := *v.source, *v
		source.Decode, other.source = name, &source
		if plain, err := other.Decode(d); err == nil {
			list = append(list, guess{"before it was compressed", "write decode: " + name + " into the source", plain.Body})
		}
	}
	return list
}

// otherKeys returns other readings of a secret.
func otherKeys(g *Signature, text string) []guess {
	if hashes[g.Algorithm] == nil && g.Algorithm != "token" {
		return nil
	}
	_, bare, _ := strings.Cut(text, "_")
	list := []guess{
		{"is used as it is written", "", []byte(text)},
		{"is used without the white space around it", "", []byte(strings.TrimSpace(text))},
		{"is used without the quotes around it", "", []byte(strings.Trim(text, `"'`))},
		{"is used without what stands before _", "", []byte(bare)},
		{"is used with a line end behind it", "", []byte(text + "\n")},
	}
	for _, s := range []string{text, bare} {
		if key, err := hex.DecodeString(s); err == nil {
			list = append(list, guess{"is read as hexadecimal", "", key})
		}
		if key, err := base64.StdEncoding.DecodeString(s); err == nil {
			list = append(list, guess{"is read as base64", "", key})
		}
	}
	return list
}
