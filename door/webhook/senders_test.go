package webhook

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the table of senders in docs/webhooks.md anew")

// party is a sender with a secret of its own.
type party struct {
	secret string                              // or the public key, as its receiver has it
	make   func(signed []byte) ([]byte, error) // nil where the secret is all it takes
}

// newParty makes one. No two have the same secret.
func newParty(t testing.TB, s *Source) party {
	t.Helper()
	private := func(k crypto.Signer, err error) (crypto.Signer, []byte) {
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKIXPublicKey(k.Public())
		if err != nil {
			t.Fatal(err)
		}
		return k, der
	}
	hashed := func(k crypto.Signer) func([]byte) ([]byte, error) {
		return func(signed []byte) ([]byte, error) {
			sum := sha256.Sum256(signed)
			return k.Sign(rand.Reader, sum[:], crypto.SHA256)
		}
	}
	switch g := &s.Signature; g.Algorithm {
	case "ed25519":
		public, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return party{g.SecretPrefix + base64.StdEncoding.EncodeToString(public), func(signed []byte) ([]byte, error) { return ed25519.Sign(key, signed), nil }}
	case "ecdsa-p256-sha256":
		k, der := private(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		return party{base64.StdEncoding.EncodeToString(der), hashed(k)}
	case "rsa-sha256":
		k, _ := private(rsa.GenerateKey(rand.Reader, minRSA))
		return party{certify(t, k, signedAt.Add(time.Hour*24*30)), hashed(k)}
	default:
		key := []byte(rand.Text())
		switch g.Secret {
		case "hex":
			return party{secret: hex.EncodeToString(key)}
		case "base64":
			return party{secret: g.SecretPrefix + base64.StdEncoding.EncodeToString(key)}
		}
		return party{secret: string(key)}
	}
}

// certify makes a certificate that is valid for a month, up to a time.
func certify(t testing.TB, k crypto.Signer, until time.Time) string {
	t.Helper()
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-60 * 24 * time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, c, c, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// sign signs a copy of a delivery as the party would at a time.
func (p party) sign(t testing.TB, s *Source, d *Delivery, url string, at time.Time) *Delivery {
	t.Helper()
	c := &Delivery{Header: d.Header.Clone(), Body: bytes.Clone(d.Body)}
	var err error
	if p.make == nil {
		err = s.Sign(c, p.secret, url, at)
	} else {
		err = s.signWith(c, url, endpoint, at, p.make)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// changed is a delivery whose first event says something else under its id.
func changed(t testing.TB, v vector) *Delivery {
	t.Helper()
	d := v.delivery(t)
	events, err := v.verifier(t).Verify(d)
	if err != nil {
		t.Fatal(err)
	}
	was := events[0].Body
	now := append([]byte(`{"changed":1,`), was[min(1, len(was)):]...)
	if was[0] != '{' {
		now = append(bytes.Clone(was), "&Changed=1"...)
	}
	return &Delivery{Header: d.Header, Body: bytes.Replace(d.Body, was, now, 1)}
}

// trial has deliveries of one sender come to receivers.
type trial struct {
	*testing.T
	v      vector
	source *Source
}

// rig is a receiver with these secrets.
func (c *trial) rig(secrets ...string) *rig {
	return newRig(c.T, c.v.source, func(o *Options) { o.Secrets, o.URL, o.Evidence = secrets, c.v.url, "" })
}

// refused is the code by which a delivery is refused.
func (c *trial) refused(r *rig, d *Delivery) string {
	c.Helper()
	w := r.post(d)
	var p struct{ Code string }
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != http.StatusUnauthorized || len(r.work()) != 0 {
		c.Errorf("%d %s: it isn't refused", w.Code, w.Body)
	}
	return fmt.Sprintf("401 `%s`", p.Code)
}

// handled is how many events have been handled, each of them once.
func (r *rig) once() int {
	r.t.Helper()
	r.work()
	for id, n := range r.handled {
		if n != 1 {
			r.t.Errorf("%s is handled %d times", id, n)
		}
	}
	return len(r.handled)
}

// row is what becomes of deliveries of the sender.
func (c *trial) row() []string {
	c.Helper()
	p, old := newParty(c.T, c.source), newParty(c.T, c.source)
	d, n := c.v.delivery(c.T), len(c.v.keys)
	as := func(p party, d *Delivery, at time.Time) *Delivery { return p.sign(c.T, c.source, d, c.v.url, at) }

	r := c.rig(p.secret)
	r.want(as(p, d, signedAt), http.StatusOK)
	if got := r.once(); got != n {
		c.Errorf("fresh: %d of %d events are handled", got, n)
	}
	cells := []string{"200, handled"}

	r.want(as(p, d, signedAt.Add(time.Minute)), http.StatusOK)
	if got := r.once(); got != n {
		c.Errorf("again: %d are handled, not %d", got, n)
	}
	cells = append(cells, "200, duplicate")

	r.want(as(p, changed(c.T, c.v), signedAt), http.StatusOK)
	switch parked, got := len(r.parked()), r.once(); {
	case parked == 1 && got == n:
		cells = append(cells, "200, parked")
	case parked == 0 && got == n+1 && slices.Contains(c.source.rules[0].texts(), "{digest}"):
		cells = append(cells, "200, another event")
	default:
		c.Errorf("other content: %d are parked, %d handled", parked, got)
	}

	cells = append(cells, c.refused(c.rig(p.secret), as(old, d, signedAt)))

	aged := "can't be told"
	if c.source.stamp != nil {
		aged = c.refused(c.rig(p.secret), as(p, d, signedAt.Add(-time.Duration(c.source.Timestamp.Tolerance)-time.Minute)))
	}
	cells = append(cells, aged)

	r = c.rig(p.secret, old.secret)
	r.want(as(old, d, signedAt), http.StatusOK)
	r.want(as(p, d, signedAt), http.StatusOK)
	if got := r.once(); got != n {
		c.Errorf("rotated: %d are handled, not %d", got, n)
	}
	return append(cells, "200, then "+c.refused(c.rig(p.secret), as(old, d, signedAt)))
}

// texts are the places of the identity of a rule.
func (r *rule) texts() (list []string) {
	for _, t := range slices.Concat(r.id, r.fallback) {
		for _, seg := range t {
			if seg.place != nil {
				list = append(list, "{"+seg.place.text+"}")
			}
		}
	}
	return list
}

// TestSenders tries every source that is built in in all cases of the table in the page.
func TestSenders(t *testing.T) {
	const head = "\n| source | fresh | again | other content under its id | forged | old | signed with the former secret: while both are set, then | waits for | repeats for |\n" +
		"|---|---|---|---|---|---|---|---|---|\n"
	var rows []string
	for _, name := range Sources() {
		t.Run(name, func(t *testing.T) {
			s, err := Builtin(name)
			if err != nil {
				t.Fatal(err)
			}
			var first []string
			for _, v := range vectors {
				if v.source != name || v.file == "github-text" {
					continue
				}
				row := (&trial{t, v, s}).row()
				if first == nil {
					first = row
				}
				if !slices.Equal(row, first) {
					t.Errorf("%s: %q, and the first delivery of the source %q", v.file, row, first)
				}
			}
			rows = append(rows, fmt.Sprintf("| `%s` | %s | %v | %v |\n", name, strings.Join(first, " | "), s.Patience, s.Horizon))
		})
	}
	if t.Failed() || len(rows) != len(Sources()) {
		return // some of them were asked for
	}
	table := head + strings.Join(rows, "")
	const file, begin, end = "../../docs/webhooks.md", "<!-- TestSenders of door/webhook writes this table, with -update. -->\n", "\n<!-- end -->"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), begin)
	was, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no table of senders", file)
	}
	if was == table {
		return
	}
	if !*update {
		t.Fatalf("the table of senders in %s is not current: run the test with -update", file)
	}
	if err := os.WriteFile(file, []byte(before+begin+table+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}
