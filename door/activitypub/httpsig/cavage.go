package httpsig

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
)

// readCavage reads a request's signature by draft-cavage-http-signatures-12, and makes its
// signing string.
func readCavage(header http.Header, q *request) (*signature, error) {
	if len(header["Signature"]) != 1 {
		return nil, refuse(SignatureMalformed, "the field Signature must have one value")
	}
	params, err := parameters(header["Signature"][0])
	if err != nil {
		return nil, err
	}
	s := &signature{form: FormCavage, keyID: params["keyid"], algorithm: strings.ToLower(params["algorithm"])}
	if s.keyID == "" {
		return nil, refuse(SignatureMalformed, "the signature has no keyId")
	}
	if s.value, err = base64.StdEncoding.Strict().DecodeString(params["signature"]); err != nil || len(s.value) == 0 {
		return nil, refuse(SignatureMalformed, "the parameter signature can't be read")
	}
	var created int64
	for name, to := range map[string]*int64{"created": &created, "expires": &s.expires} {
		if text, ok := params[name]; ok {
			if *to, err = strconv.ParseInt(text, 10, 64); err != nil || *to <= 0 {
				return nil, refuse(SignatureMalformed, "the parameter %s can't be read", name)
			}
		}
	}
	names, given := params["headers"]
	if !given { // the draft's default is (created) alone; earlier drafts' is date
		return nil, refuse(SignatureWeak, "the signature does not cover (request-target)")
	}
	if err := s.signingString(q, strings.Split(names, " "), created); err != nil {
		return nil, err
	}
	return s, nil
}

// signingString covers the named components (section 2.3 of the draft). created counts only if
// the signature covers it.
func (s *signature) signingString(q *request, names []string, created int64) error {
	if len(names) > maxComponents {
		return refuse(SignatureMalformed, "the signature covers more than %d components", maxComponents)
	}
	var text strings.Builder
	for i, name := range names {
		name = strings.ToLower(name)
		if err := s.cover(name); err != nil {
			return err
		}
		if i > 0 {
			text.WriteByte('\n')
		}
		text.WriteString(name + ": ")
		switch name {
		case "(request-target)":
			text.WriteString(strings.ToLower(q.method) + " " + q.target)
		case "(created)":
			if created == 0 || s.old() {
				return refuse(SignatureMalformed, "(created) is covered, and there is none or the algorithm has none")
			}
			s.created = created
			text.WriteString(strconv.FormatInt(created, 10))
		case "(expires)":
			if s.expires == 0 || s.old() {
				return refuse(SignatureMalformed, "(expires) is covered, and there is none or the algorithm has none")
			}
			text.WriteString(strconv.FormatInt(s.expires, 10))
		default:
			value, ok := q.field(name)
			if !ok {
				return absent()
			}
			text.WriteString(value)
		}
	}
	s.text = []byte(text.String())
	return nil
}

// old reports whether the signature names an algorithm of an earlier draft, which requires
// refusing (created) and (expires).
func (s *signature) old() bool {
	return strings.HasPrefix(s.algorithm, "rsa") || strings.HasPrefix(s.algorithm, "hmac") || strings.HasPrefix(s.algorithm, "ecdsa")
}

// parameters reads name="value" and name=number, separated by commas, by their lower-case
// names. A value may contain commas, but no quotation marks or backslashes.
func parameters(text string) (map[string]string, error) {
	malformed := refuse(SignatureMalformed, "the field Signature can't be read")
	found := make(map[string]string)
	for {
		name, rest, ok := strings.Cut(strings.TrimLeft(text, " \t"), "=")
		if !ok || name == "" || strings.ContainsAny(name, " \t,\"") {
			return nil, malformed
		}
		var value string
		if quoted, is := strings.CutPrefix(rest, `"`); is {
			if value, rest, ok = strings.Cut(quoted, `"`); !ok || strings.Contains(value, `\`) {
				return nil, malformed
			}
		} else {
			at := strings.IndexAny(rest, ", \t")
			if at < 0 {
				at = len(rest)
			}
			if value, rest = rest[:at], rest[at:]; value == "" || strings.Contains(value, `"`) {
				return nil, malformed
			}
		}
		name = strings.ToLower(name)
		if _, twice := found[name]; twice || len(found) == maxComponents {
			return nil, malformed
		}
		found[name] = value
		rest = strings.TrimLeft(rest, " \t")
		if rest == "" {
			return found, nil
		}
		if text, ok = strings.CutPrefix(rest, ","); !ok {
			return nil, malformed
		}
	}
}
