package activitypub

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/semelhq/semel/door/activitypub/httpsig"
)

// Explanation says how an inbox would treat a request, as far as that is possible without a
// store.
type Explanation struct {
	// Inboxes are the names of the actors who get the activity; an empty name stands for nobody
	// in particular.
	Inboxes []string `json:"inboxes,omitempty"`
	// Activity is its id, with its Type and Actor.
	Activity string `json:"activity_id,omitempty"`
	Type     string `json:"type,omitempty"`
	Actor    string `json:"actor_id,omitempty"`
	// Key names the call in each inbox, and Digest is the digest of the compared content.
	Key    string `json:"key,omitempty"`
	Digest string `json:"digest,omitempty"`
	// Signature is the form of the request's signature, and KeyIDs name the keys that it
	// claims. Empty if it has none.
	Signature string   `json:"signature,omitempty"`
	KeyIDs    []string `json:"key_ids,omitempty"`
	// Needed says whether the request needs a signature.
	Needed bool `json:"signature_needed"`
	// Unproved says that everything about the signature is right, except that the key is
	// missing. The rest then says what happens if the signature is the actor's.
	Unproved bool `json:"unproved,omitempty"`
	// Status is the answer's status: 202 for an activity that is new, a duplicate or a
	// conflict. Otherwise Refused says why.
	Status  int    `json:"status"`
	Refused string `json:"refused,omitempty"`
}

// Explain says how an inbox with these options would treat a request. It needs neither Handle
// nor an engine. Give it a Verifier that can't fetch keys, unless it may fetch some.
func (opts Options) Explain(r *http.Request, body []byte) (Explanation, error) {
	opts = opts.withDefaults()
	actors, err := newTemplate(opts.Actors)
	if err != nil {
		return Explanation{}, err
	}
	var x Explanation
	c := &claims{Verifier: opts.Verifier}
	opts.Verifier = c
	in := &Inbox{opts: opts, actors: actors}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	a, err := in.receive(headerOnly{}, r)
	x.Activity, x.Type, x.Actor, x.Unproved = a.ID, a.Type, a.Actor, c.unproved
	x.Signature, x.KeyIDs = httpsig.Claimed(r.Header)
	x.Needed = !opts.Policies.of(hostOf(cmp.Or(a.Actor, a.ID))).Unsigned
	if a.ID != "" {
		x.Key = keyOf(a.ID)
	}
	if err == nil {
		x.Digest = a.print.String()
		if x.Inboxes, err = in.inboxes(r.Context(), a); a.foreign && err == nil {
			err = strange()
		}
	}
	x.Status = http.StatusAccepted
	if f, ok := errors.AsType[*senderError](err); ok {
		x.Status, x.Refused, x.Inboxes = f.status, f.Error(), nil
	} else if err != nil {
		return x, err
	}
	return x, nil
}

// claims believes signatures without their keys, and notes that.
type claims struct {
	Verifier
	unproved bool
}

func (c *claims) VerifyActor(r *http.Request, body []byte, actor string) (httpsig.Signer, error) {
	signer, err := c.Verifier.VerifyActor(r, body, actor)
	why, known := errors.AsType[*httpsig.Error](err)
	if !known || why.Code != httpsig.KeyUnavailable {
		return signer, err
	}
	_, ids := httpsig.Claimed(r.Header)
	if actor != "" {
		signer.Actor = actor
	} else if len(ids) > 0 {
		signer.Actor, _, _ = strings.Cut(ids[0], "#")
	}
	c.unproved = true
	return signer, nil
}

// headerOnly drops every body.
type headerOnly struct{}

func (headerOnly) Header() http.Header         { return http.Header{} }
func (headerOnly) Write(p []byte) (int, error) { return len(p), nil }
func (headerOnly) WriteHeader(int)             {}
