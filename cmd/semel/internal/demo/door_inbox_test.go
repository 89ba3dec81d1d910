package demo

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/url"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/activitypub/httpsig"
)

// inboxDoor accepts signed activities for the inbox of an actor. Unlike at other doors, an
// order is charged after its sender has its answer, and again if Semel is killed before it
// knows of that; the toy service tells by the id of the delivery.
type inboxDoor struct{}

const (
	inboxPath = "/actors/shop/inbox/"
	buyerPath = "/users/buyer"
	buyerKey  = "#main-key"
	// buyerSeed makes the key of the buyer, which signs nothing outside of the tour.
	buyerSeed = "the buyer of the tour of Semel.."
)

func (inboxDoor) name() string { return "ActivityPub" }
func (inboxDoor) slug() string { return "activity" }

func (inboxDoor) configure(c *setup) error {
	c.add("activitypub", `
- actors_url: "http://shop.example/actors/{actor}"
  actors: [shop]
  upstream: %q
  lease: %s
  signatures: {allow_private: true}`, c.upstream+inboxPath, tourLease)
	return nil
}

// offer is an activity about an order.
type offer struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Actor  string `json:"actor"`
	Object order  `json:"object"`
}

func (inboxDoor) serve(p *provider, mux *http.ServeMux) {
	mux.HandleFunc("POST "+inboxPath, func(w http.ResponseWriter, r *http.Request) {
		var a offer
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
			http.Error(w, "this is no activity", http.StatusBadRequest)
			return
		}
		id := r.Header.Get("webhook-id")
		if id != "" && p.charged(id) {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		p.chargeAs(w, r, a.Object, id, func(c Charge) (int, any) { return http.StatusAccepted, c })
	})
	mux.HandleFunc("GET "+buyerPath, func(w http.ResponseWriter, r *http.Request) {
		der, err := x509.MarshalPKIXPublicKey(buyer().Public())
		if err != nil {
			http.Error(w, "there is no key", http.StatusInternalServerError)
			return
		}
		actor := "http://" + r.Host + buyerPath
		w.Header().Set("Content-Type", "application/activity+json")
		_ = json.NewEncoder(w).Encode(map[string]any{"id": actor, "type": "Person", "publicKey": map[string]any{
			"id": actor + buyerKey, "owner": actor, "publicKeyPem": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
		}})
	})
}

func buyer() ed25519.PrivateKey { return ed25519.NewKeyFromSeed([]byte(buyerSeed)) }

// deliver signs in either form, as senders do that don't know which one is understood.
func (inboxDoor) deliver(ctx context.Context, t *target, o order, copy int) (reply, error) {
	a := offer{ID: t.provider + "/offers/" + o.Order, Type: "Offer", Actor: t.provider + buyerPath, Object: o}
	body := document(a)
	form := httpsig.FormRFC9421
	if copy%2 == 1 {
		form = httpsig.FormCavage
	}
	at := &url.URL{Scheme: "http", Host: "shop.example", Path: inboxPath}
	signed := &http.Request{Method: http.MethodPost, URL: at, Host: at.Host, Header: http.Header{"Content-Type": {"application/activity+json"}}}
	if err := httpsig.Sign(signed, body, httpsig.SignOptions{KeyID: a.Actor + buyerKey, Key: buyer(), Form: form}); err != nil {
		return reply{}, err
	}
	got, err := t.client.post(ctx, t.guard+inboxPath, signed.Header, body)
	if err == nil && got.ok() {
		err = t.client.awaitCharge(ctx, t.provider, o.Order)
	}
	return httpReply(got, a.ID), err
}

// result is nothing: who sends an activity hears no more of it.
func (inboxDoor) result(Charge) semel.Result { return semel.Result{} }

// charged reports whether there is a charge with a reference.
func (p *provider) charged(reference string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(match(p.ledger, "", reference)) > 0
}
