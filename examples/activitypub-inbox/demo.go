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
	"strings"
	"time"

	"github.com/semelhq/semel/door/activitypub/httpsig"
	"github.com/semelhq/semel/internal/rig/stage"
)

// demo is the inbox with another server, where bob reports, and prints requests to send.
func demo(ctx context.Context, l net.Listener, dir string, out io.Writer) error {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return err
	}
	there, stop, err := stage.Toy(toyServer(public))
	if err != nil {
		return err
	}
	here, bob := "http://"+l.Addr().String(), there+"/users/bob"
	report := fmt.Sprintf("%s/reports/%d", there, time.Now().Unix())
	var requests []stage.Request
	for _, kind := range []string{"Offer", "Offer", "Accept"} {
		activity := fmt.Sprintf(`{"@context":"https://www.w3.org/ns/activitystreams","type":%q,"id":"%s#%s","actor":%q,"to":["%s/actors/alice"],"object":%q}`,
			kind, report, strings.ToLower(kind), bob, here, report)
		request, err := signed(here+"/actors/alice/inbox", activity, bob+"#main-key", key)
		if err != nil {
			return errors.Join(err, stop())
		}
		requests = append(requests, request)
	}
	stage.Show(out, "Another server has bob's key. Send a report, send it again, and accept it; a signature is good for some minutes:", requests...)
	t := &tracker{changed: func(change, report string) error {
		fmt.Fprintln(out, "tracker:", change, report)
		return nil
	}}
	return errors.Join(serve(ctx, l, dir, here, httpsig.KeysOptions{AllowPrivate: true}, t), stop())
}

// toyServer serves bob's document, which has the key.
func toyServer(public ed25519.PublicKey) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		der, err := x509.MarshalPKIXPublicKey(public)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		bob := "http://" + r.Host + r.URL.Path
		w.Header().Set("Content-Type", "application/activity+json")
		_ = json.NewEncoder(w).Encode(map[string]any{"id": bob, "type": "Person", "publicKey": map[string]string{
			"id": bob + "#main-key", "owner": bob, "publicKeyPem": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
		}})
	})
}

// signed is an activity with its signature.
func signed(inbox, activity, keyID string, key ed25519.PrivateKey) (stage.Request, error) {
	r, err := http.NewRequest(http.MethodPost, inbox, strings.NewReader(activity))
	if err == nil {
		r.Header.Set("Content-Type", "application/activity+json")
		err = httpsig.Sign(r, []byte(activity), httpsig.SignOptions{KeyID: keyID, Key: key})
	}
	if err != nil {
		return stage.Request{}, err
	}
	return stage.Request{URL: inbox, Header: r.Header, Body: activity}, nil
}
