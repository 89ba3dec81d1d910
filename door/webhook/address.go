package webhook

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// view returns a delivery to an address, which its sender may also call by another name.
func (s *Source) view(d *Delivery, address, endpoint string) *view {
	v := &view{delivery: d, body: bodyNode(d.Body), url: address, endpoint: endpoint}
	name := s.Signature.BodySHA256
	if q, err := url.ParseQuery(d.Query); name == "" || err != nil || !q.Has(name) {
		return v
	}
	// The sender has signed the address with its digest of the body. Use the digest of the
	// received body: the signature is right only if the two are the same.
	sep := "?"
	if strings.Contains(address, "?") {
		sep = "&"
	}
	v.hashed, v.url = true, fmt.Sprintf("%s%s%s=%x", address, sep, name, sha256.Sum256(d.signed()))
	return v
}

// isForm reports whether the header says that the body is a form.
func isForm(h http.Header) bool {
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return media == "application/x-www-form-urlencoded"
}

// maxFields bounds the fields of a form, which the receiver reads before it knows the sender.
const maxFields = 1000

// form returns the body as a form. A body that isn't a form has no fields.
func (v *view) form() (url.Values, error) {
	d := v.delivery
	switch {
	case len(d.Body) == 0:
		return nil, nil
	case !isForm(d.Header):
		return nil, errors.New("the body is not a form")
	case bytes.Count(d.Body, []byte("&")) >= maxFields:
		return nil, fmt.Errorf("the form has more than %d fields", maxFields)
	}
	form, err := url.ParseQuery(string(d.Body))
	if err != nil {
		return nil, errors.New("the form can't be read")
	}
	return form, nil
}

// sorted returns all names and values of a form in order, each pair once. It is empty if the
// address has the digest of the body.
func (v *view) sorted() (string, error) {
	if v.hashed {
		return "", nil
	}
	form, err := v.form()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(form)) {
		slices.Sort(form[name])
		for _, value := range slices.Compact(form[name]) {
			b.WriteString(name + value)
		}
	}
	return b.String(), nil
}

// decodedURL decodes what HubSpot decodes in an address before signing it.
var decodedURL = func() *strings.Replacer {
	var pairs []string
	for _, c := range ":/?@!$'()*,;" {
		pairs = append(pairs, fmt.Sprintf("%%%02X", c), string(c), fmt.Sprintf("%%%02x", c), string(c))
	}
	return strings.NewReplacer(pairs...)
}()
