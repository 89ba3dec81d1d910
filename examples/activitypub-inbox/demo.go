package main

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/door/activitypub/httpsig"
)

// demo is the inbox with another server, where bob reports, and prints requests to send.
func demo(ctx context.Context, l net.Listener, dir string, out io.Writer) error {
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return err
	}
	there, here := "http://"+at.Addr().String(), "http://"+l.Addr().String()
	bob := there + "/users/bob"
	server, err := toyServer(bob, public)
	if err != nil {
		return err
	}
	go func() { _ = server.Serve(at) }() // which ends because it is closed
	fmt.Fprintln(out, "Another server has bob's key. Send a report, send it again, and accept it; a signature is good for some minutes:")
	report := fmt.Sprintf("%s/reports/%d", there, time.Now().Unix())
	for _, kind := range []string{"Offer", "Offer", "Accept"} {
		activity := fmt.Sprintf(`{"@context":"https://www.w3.org/ns/activitystreams","type":%q,"id":"%s#%s","actor":%q,"to":["%s/actors/alice"],"object":%q}`,
			kind, report, strings.ToLower(kind), bob, here, report)
		request, err := signed(here+"/actors/alice/inbox", activity, bob+"#main-key", key)
		if err != nil {
			return errors.Join(err, server.Close())
		}
		fmt.Fprintf(out, "\n  %s\n", request)
	}
	fmt.Fprintln(out)
	t := &tracker{changed: func(change, report string) error {
		fmt.Fprintln(out, "tracker:", change, report)
		return nil
	}}
	return errors.Join(serve(ctx, l, dir, here, httpsig.KeysOptions{AllowPrivate: true}, t), server.Close())
}

// toyServer serves the actor's document, which has the key.
func toyServer(bob string, public ed25519.PublicKey) (*http.Server, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, err
	}
	document, err := json.Marshal(map[string]any{"id": bob, "type": "Person", "publicKey": map[string]string{
		"id": bob + "#main-key", "owner": bob, "publicKeyPem": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
	}})
	return &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/activity+json")
		_, _ = w.Write(document)
	})}, err
}

// signed is the command that posts an activity with its signature.
func signed(inbox, activity, keyID string, key ed25519.PrivateKey) (string, error) {
	r, err := http.NewRequest(http.MethodPost, inbox, strings.NewReader(activity))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/activity+json")
	if err := httpsig.Sign(r, []byte(activity), httpsig.SignOptions{KeyID: keyID, Key: key}); err != nil {
		return "", err
	}
	var headers []string
	for name, values := range r.Header {
		headers = append(headers, fmt.Sprintf("-H '%s: %s'", name, values[0]))
	}
	slices.Sort(headers)
	return fmt.Sprintf("curl -sS -w '%%{http_code}\\n' %s %s -d '%s'", inbox, strings.Join(headers, " "), activity), nil
}
