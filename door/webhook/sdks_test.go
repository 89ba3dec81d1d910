package webhook

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/thorough"
)

// task is what the senders' libraries for JavaScript do with a delivery.
type task struct {
	Source   string            `json:"source"`
	Do       string            `json:"do"`
	Body     string            `json:"body"`
	Header   map[string]string `json:"header"`
	URL      string            `json:"url"`
	Secret   string            `json:"secret"`
	Key      string            `json:"key,omitempty"`
	Endpoint string            `json:"endpoint"`
	Time     int64             `json:"time"`
}

type done struct {
	OK     bool              `json:"ok"`
	Header map[string]string `json:"header"`
	Query  string            `json:"query"`
}

// libraries have the libraries do something.
func libraries(t *testing.T, tasks []task) (got []done) {
	t.Helper()
	dir := filepath.Join("testdata", "npm")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "twilio")); errors.Is(err, os.ErrNotExist) {
		const missing = "the libraries are not there: scripts/install-sdks installs them"
		if os.Getenv("SEMEL_REQUIRE_SERVICES") == "1" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	in, err := json.Marshal(tasks)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "senders.mjs")
	cmd.Dir, cmd.Stderr, cmd.Stdin = dir, os.Stderr, bytes.NewReader(in)
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil || len(got) != len(tasks) {
		t.Fatalf("%v: %s", err, out)
	}
	return got
}

func taskOf(source, do, secret string, v vector, d *Delivery) task {
	k := task{source, do, string(d.Body), map[string]string{}, v.url, secret, "", endpoint, signedAt.Unix()}
	for name := range d.Header {
		k.Header[name] = d.Header.Get(name)
	}
	if d.Query != "" && do == "check" && !strings.Contains(v.url, "?") {
		k.URL += "?" + d.Query
	}
	return k
}

// TestLibrariesOfSenders: what a sender's own library, or the recipe in its documents, signs
// is taken; and it takes what is signed here and nothing else.
func TestLibrariesOfSenders(t *testing.T) {
	thorough.Only(t, "libraries of senders")
	type trial struct {
		vector
		only string // check, where nobody but the sender can sign
	}
	var trials []trial
	for _, v := range vectors {
		switch v.source {
		case "twilio", "sendgrid", "hubspot", "github", "standard-webhooks", "intercom", "paystack", "gitlab":
			trials = append(trials, trial{v, ""})
		case "telegram", "paypal":
			trials = append(trials, trial{v, "check"})
		}
	}
	var tasks []task
	for i := range trials {
		v := trials[i].vector
		d := v.delivery(t)
		ver := v.verifier(t)
		p := newParty(t, ver.source)
		signed := p.sign(t, ver.source, d, v.url, signedAt)
		other := &Delivery{Header: signed.Header, Body: append(bytes.Clone(signed.Body), ' '), Query: signed.Query}
		secret := p.secret
		if ver.source.signed == nil {
			other, secret = signed, newParty(t, ver.source).secret
		}
		tasks = append(tasks, taskOf(v.source, "check", v.secret, v, d), taskOf(v.source, "check", p.secret, v, signed), taskOf(v.source, "check", secret, v, other))
		if trials[i].only == "" {
			sign := taskOf(v.source, "sign", v.secret, v, d)
			if v.source == "sendgrid" {
				trials[i].secret, sign.Key = keyPair(t)
			}
			tasks = append(tasks, sign)
		}
	}
	got := libraries(t, tasks)
	for _, v := range trials {
		if !got[0].OK || !got[1].OK || got[2].OK {
			t.Errorf("%s: the library takes the delivery in testdata, one signed here, and a changed one: %v, %v, %v", v.file, got[0].OK, got[1].OK, got[2].OK)
		}
		if got = got[3:]; v.only != "" {
			continue
		}
		d := v.delivery(t)
		d.Query = got[0].Query
		for name, value := range got[0].Header {
			d.Header.Set(name, value)
		}
		if _, err := v.verifier(t).Verify(d); err != nil {
			t.Errorf("%s signed by the library: %v", v.file, err)
		}
		got = got[1:]
	}
}

// keyPair is a public key as SendGrid shows it, and the private one.
func keyPair(t *testing.T) (public, private string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(spki), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1}))
}
