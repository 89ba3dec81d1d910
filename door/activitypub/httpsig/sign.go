package httpsig

import (
	"cmp"
	"crypto"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// SignOptions say how [Sign] signs.
type SignOptions struct {
	// KeyID is the URL of the key's document. Required.
	KeyID string
	// Key is an RSA, P-256 or Ed25519 key. Required.
	Key crypto.Signer
	// Form is "rfc9421", the default, or "cavage", which more servers understand.
	Form string
	// Now is the clock. Defaults to [time.Now].
	Now func() time.Time
}

// Sign signs a client's request with this body, by the algorithm that most servers accept for
// the key: RSA signs with PKCS #1 v1.5 and SHA-256. It sets Date, Signature, and
// Signature-Input with Content-Digest or, in the draft's form, Digest; a GET or HEAD without a
// body gets no digest. The request needs an absolute URL. Set its Host and Content-Type first.
func Sign(r *http.Request, body []byte, opts SignOptions) error {
	if opts.Key == nil || opts.KeyID == "" || strings.ContainsAny(opts.KeyID, "\"\\") {
		return errors.New("httpsig: signing needs a key, and its id as a URL")
	}
	if r.URL == nil || r.URL.Host == "" || r.URL.Scheme == "" {
		return errors.New("httpsig: the request needs an absolute URL")
	}
	form := cmp.Or(opts.Form, FormRFC9421)
	if form != FormRFC9421 && form != FormCavage {
		return errors.New("httpsig: the form is rfc9421 or cavage")
	}
	first := slices.IndexFunc(algorithms, func(a *algorithm) bool { return a.kind == kindOf(opts.Key.Public()) })
	if first < 0 {
		return errors.New("httpsig: keys of this kind can't sign")
	}
	now := opts.Now
	if now == nil {
		now = time.Now
	}
	at := now()
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	r.Header.Set("Date", at.UTC().Format(http.TimeFormat))
	r.Header.Del("Signature")
	r.Header.Del("Signature-Input")
	q, err := requestOf(r, nil)
	if err != nil {
		return err
	}
	to := &signing{request: q, by: algorithms[first], key: opts.Key, keyID: opts.KeyID, body: body, withBody: hasBody(q, body)}
	if form == FormCavage {
		return to.cavage()
	}
	return to.message(at)
}

// signing is a request in the course of being signed.
type signing struct {
	*request
	by       *algorithm
	key      crypto.Signer
	keyID    string
	body     []byte
	withBody bool
}

// optional returns the fields that the request has, so that the signature covers them.
func (to *signing) optional(names []string) []string {
	if to.header.Get("Content-Type") != "" {
		names = append(names, "content-type")
	}
	return names
}

func (to *signing) message(at time.Time) error {
	names := []string{"@method", "@target-uri", "@authority", "date"}
	if to.withBody {
		to.header.Set("Content-Digest", contentDigest(to.body))
		names = append(names, "content-digest")
	}
	input := httpsfv.InnerList{Params: httpsfv.NewParams()}
	for _, name := range to.optional(names) {
		input.Items = append(input.Items, httpsfv.NewItem(name))
	}
	input.Params.Add("created", at.Unix())
	input.Params.Add("keyid", to.keyID)
	input.Params.Add("alg", to.by.rfc9421)
	s := &signature{form: FormRFC9421}
	if err := s.base(input, to.component); err != nil {
		return err
	}
	value, err := to.by.sign(to.key, s.text, FormRFC9421)
	if err != nil {
		return err
	}
	for name, member := range map[string]httpsfv.Member{"Signature-Input": input, "Signature": httpsfv.NewItem(value)} {
		dict := httpsfv.NewDictionary()
		dict.Add("sig1", member)
		text, err := httpsfv.Marshal(dict)
		if err != nil {
			return err
		}
		to.header.Set(name, text)
	}
	return nil
}

func (to *signing) cavage() error {
	names := []string{"(request-target)", "host", "date"}
	if to.withBody {
		to.header.Set("Digest", digest(to.body))
		names = append(names, "digest")
	}
	names = to.optional(names)
	s := &signature{form: FormCavage, algorithm: to.by.cavage}
	if err := s.signingString(to.request, names, 0); err != nil {
		return err
	}
	value, err := to.by.sign(to.key, s.text, FormCavage)
	if err != nil {
		return err
	}
	named := hs2019 // the draft's only name that isn't deprecated
	if to.by.cavage == "rsa-sha256" {
		named = to.by.cavage // what everybody understands
	}
	to.header.Set("Signature", `keyId="`+to.keyID+`",algorithm="`+named+`",headers="`+strings.Join(names, " ")+
		`",signature="`+base64.StdEncoding.EncodeToString(value)+`"`)
	return nil
}
