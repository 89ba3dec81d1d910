package webhook

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// own loads a source with these lines.
func own(t *testing.T, lines string) *Source {
	t.Helper()
	s, err := Load("own.yaml", []byte("name: own\nhorizon: 1d\n"+lines))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const ownSecret = "a secret of its own"

// ownRig is a receiver of the source.
func ownRig(t *testing.T, s *Source, change ...func(*Options)) *rig {
	t.Helper()
	return newRig(t, "github", append([]func(*Options){func(o *Options) {
		o.Source, o.Secrets, o.Evidence = s, []string{ownSecret}, ""
	}}, change...)...)
}

func ownDelivery(t *testing.T, s *Source, body string) *Delivery {
	t.Helper()
	d := &Delivery{Header: http.Header{}, Body: []byte(body)}
	if err := s.Sign(d, ownSecret, "", signedAt); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDeclaredSchemes: a file declares each algorithm, encoding and unit, with a prefix.
func TestDeclaredSchemes(t *testing.T) {
	for _, algorithm := range []string{"hmac-sha1", "hmac-sha256", "hmac-sha512"} {
		for _, encoding := range []string{"hex", "base64"} {
			for _, unit := range []string{"s", "ms", "rfc3339"} {
				t.Run(strings.Join([]string{algorithm, encoding, unit}, ", "), func(t *testing.T) {
					s := own(t, fmt.Sprintf(`
signature: {in: "{header:X-Sign}", prefix: "its=", algorithm: %s, encoding: %s, signed: "{header:X-Time}.{body}"}
timestamp: {in: "{header:X-Time}", unit: %s}
events: [{id: "{body:id}"}]`, algorithm, encoding, unit))
					d := ownDelivery(t, s, `{"id":"1"}`)
					r := ownRig(t, s)
					r.want(d, http.StatusOK)
					for name, value := range map[string]string{"X-Time": "1614265331", "X-Sign": strings.TrimPrefix(d.Header.Get("X-Sign"), "its=")} {
						c := &Delivery{Header: d.Header.Clone(), Body: d.Body}
						c.Header.Set(name, value)
						r.want(c, http.StatusUnauthorized)
					}
					late := ownRig(t, s, func(o *Options) { o.Now = func() time.Time { return signedAt.Add(6 * time.Minute) } })
					if w := late.post(d); w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "too_old") {
						t.Errorf("%d %s", w.Code, w.Body)
					}
				})
			}
		}
	}
}

// TestATimeInAnotherUnit is refused by a code that names the unit.
func TestATimeInAnotherUnit(t *testing.T) {
	s := own(t, `
signature: {in: "{header:X-Sign}", encoding: hex, signed: "{header:X-Time}.{body}"}
timestamp: {in: "{header:X-Time}", unit: rfc3339}
events: [{id: "{body:id}"}]`)
	seconds := *s
	seconds.Timestamp.Unit = "s"
	w := ownRig(t, s).post(ownDelivery(t, &seconds, `{"id":"1"}`))
	if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "timestamp_malformed") || !strings.Contains(w.Body.String(), "2026-01-02T03:04:05Z") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestToken: a token stands in a header or a parameter, is no part of what handlers get, and
// the other one is refused, whatever its length.
func TestToken(t *testing.T) {
	for in, put := range map[string]func(d *Delivery, token string){
		"{header:X-Its-Token}": func(d *Delivery, token string) { d.Header.Set("X-Its-Token", token) },
		"{query:token}":        func(d *Delivery, token string) { d.Query = url.Values{"token": {token}}.Encode() },
	} {
		s := own(t, fmt.Sprintf(`
signature: {in: %q, algorithm: token}
events: [{id: "{body:id}"}]
headers: [X-Its-*]`, in))
		var got []http.Header
		r := ownRig(t, s, func(o *Options) {
			handle := o.Handle
			o.Handle = func(ctx context.Context, e *Event) error { got = append(got, e.Header); return handle(ctx, e) }
		})
		for token, status := range map[string]int{"": 401, "a": 401, ownSecret + "x": 401, strings.ToUpper(ownSecret): 401, ownSecret: 200} {
			d := &Delivery{Header: http.Header{"X-Its-Kind": {"a"}}, Body: []byte(`{"id":1}`)}
			put(d, token)
			r.want(d, status)
		}
		r.want(&Delivery{Header: http.Header{}, Body: []byte(`{"id":1}`), Query: "token=" + url.QueryEscape(ownSecret) + "&token=x"}, http.StatusUnauthorized)
		if r.once() != 1 || len(got) != 1 || len(got[0]) != 1 || got[0].Get("X-Its-Kind") != "a" {
			t.Errorf("%s: handled %v with %v", in, r.keys, got)
		}
		if u := s.Unsigned(); !slices.Equal(u, []string{"{body:id}"}) {
			t.Errorf("unsigned are %q", u)
		}
	}
}

// TestAList: each item of a body that is a list is a call of its own. While one can't be kept
// the sender is told to deliver again, and then the others are duplicates.
func TestAList(t *testing.T) {
	s := own(t, `
signature: {in: "{header:X-Sign}", encoding: hex}
events: [{each: "[]", id: "{body:[].id}", type: "{body:[].kind?}"}]`)
	r := ownRig(t, s)
	list := ownDelivery(t, s, `[{"id":"a"},{"id":"b","kind":"k"}, {"id":"c"}]`)
	r.store.full = ":b"
	r.want(list, http.StatusServiceUnavailable)
	if n := r.once(); n != 2 {
		t.Errorf("%d are handled", n)
	}
	r.store.full = ""
	r.want(list, http.StatusOK)
	r.want(ownDelivery(t, s, `[{"id":"c"},{"id":"d"},{"kind":"without an id"},7]`), http.StatusOK)
	if n := r.once(); n != 4 || r.keys["webhook:own:b"] != `{"id":"b","kind":"k"}` {
		t.Errorf("%d are handled: %v", n, r.keys)
	}
	for body, status := range map[string]int{`[]`: 200, `{"id":"e"}`: 200, `[{"id":"e"}`: 400, "[" + strings.Repeat("{},", maxEvents) + "{}]": 413} {
		r.want(ownDelivery(t, s, body), status)
	}
	if n := r.once(); n != 4 {
		t.Errorf("%d are handled", n)
	}
}

// TestAListWhoseItemsAreSigned: each item of a body that is a list may have its own signature.
func TestAListWhoseItemsAreSigned(t *testing.T) {
	s := own(t, `
signature: {in: "{body:[].sig}", encoding: hex, signed: "{body:[].id}:{body:[].amount}"}
events: [{each: "[]", id: "{body:[].id}"}]`)
	r := ownRig(t, s)
	d := ownDelivery(t, s, `[{"id":"a","amount":1},{"id":"b","amount":2}]`)
	r.want(d, http.StatusOK)
	r.want(&Delivery{Header: d.Header, Body: bytes.Replace(d.Body, []byte(`"amount":2`), []byte(`"amount":3`), 1)}, http.StatusUnauthorized)
	if n := r.once(); n != 2 {
		t.Errorf("%d are handled", n)
	}
}

// TestAFailingItem: with sync the sender delivers a list again until each item is handled,
// and those that were get no second try.
func TestAFailingItem(t *testing.T) {
	s := own(t, `
signature: {in: "{header:X-Sign}", encoding: hex}
events: [{each: "[]", id: "{body:[].id}"}]`)
	broken := true
	r := ownRig(t, s, func(o *Options) {
		handle := o.Handle
		o.Mode, o.Handle = Sync, func(ctx context.Context, e *Event) error {
			if broken && e.Key == "webhook:own:b" {
				return errors.New("no")
			}
			return handle(ctx, e)
		}
	})
	d := ownDelivery(t, s, `[{"id":"a"},{"id":"b"},{"id":"c"}]`)
	r.want(d, http.StatusServiceUnavailable)
	broken = false
	r.want(d, http.StatusOK)
	if n := r.once(); n != 3 {
		t.Errorf("%d are handled: %v", n, r.keys)
	}
}

// TestDeliveriesThatAreCompressedBeforeSigning are read if the source says so, within bounds.
func TestDeliveriesThatAreCompressedBeforeSigning(t *testing.T) {
	s := own(t, `
signature: {in: "{header:X-Sign}", encoding: hex}
decode: gzip
signs_compressed: true
events: [{id: "{body:id}"}]`)
	pack := func(text string, sec int64) *Delivery {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.ModTime = time.Unix(sec, 0)
		_, _ = z.Write([]byte(text))
		_ = z.Close()
		d := ownDelivery(t, s, b.String())
		d.Header.Set("Content-Encoding", "gzip")
		return d
	}
	r := ownRig(t, s, func(o *Options) { o.MaxBody = 1 << 10 })
	r.want(pack(`{"id":"1"}`, 1), http.StatusOK)
	r.want(pack(`{"id": "1"}`, 2), http.StatusOK)
	r.want(ownDelivery(t, s, `{"id":"1"}`), http.StatusOK)
	r.want(packed(ownDelivery(t, s, `{"id":"1"}`), 1, "gzip"), http.StatusUnauthorized) // signed before
	r.want(pack(`{"id":"2","x":"`+strings.Repeat("x", 1<<10)+`"}`, 1), http.StatusRequestEntityTooLarge)
	if n := r.once(); n != 1 || r.keys["webhook:own:1"] != `{"id":"1"}` {
		t.Errorf("handled %v", r.keys)
	}
}

// TestTwilioSignsTheBody, whichever way it is sent, and the address.
func TestTwilioSignsTheBody(t *testing.T) {
	for _, file := range []string{"twilio", "twilio-json"} {
		v, d := vectorOf(t, file)
		for name, forge := range map[string]func(d *Delivery){
			"another body":           func(d *Delivery) { d.Body = bytes.Replace(d.Body, []byte("0123"), []byte("0124"), 1) },
			"no body":                func(d *Delivery) { d.Body = nil },
			"a body that is no form": func(d *Delivery) { d.Header.Set("Content-Type", "application/json"); d.Body = []byte(`{}`) },
			"no form by its header":  func(d *Delivery) { d.Header.Set("Content-Type", "application/json"); d.Query = "" },
			"a form": func(d *Delivery) {
				d.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				d.Body = []byte("a=b")
			},
			"the digest of another body": func(d *Delivery) {
				d.Body = []byte(`{}`)
				d.Query = fmt.Sprintf("bodySHA256=%x", sha256.Sum256(d.Body))
			},
			"a field more":                 func(d *Delivery) { d.Body = append(d.Body, "&x=y"...) },
			"a form with too many fields":  func(d *Delivery) { d.Body = append(d.Body, strings.Repeat("&", maxFields)...) },
			"a form that can't be decoded": func(d *Delivery) { d.Body = append(d.Body, "&%zz"...) },
		} {
			forged := &Delivery{Header: d.Header.Clone(), Body: bytes.Clone(d.Body), Query: d.Query}
			forge(forged)
			if _, err := v.verifier(t).Verify(forged); err == nil {
				t.Errorf("%s: %s is taken", file, name)
			}
		}
		other := v
		other.url += "/"
		_, err := other.verifier(t).Verify(d)
		wantCode(t, err, CodeSignatureWrong)
	}
	r := newRig(t, "twilio")
	_, d := vectorOf(t, "twilio")
	if w := r.post(d); w.Body.String() != "<Response/>" || w.Header().Get("Content-Type") != "text/xml" {
		t.Errorf("%v %s", w.Header(), w.Body)
	}
}
