// Package activitypub judges inboxes of ActivityPub by deliveries. It is another server of the
// fediverse, with two actors, and the outside system that a handler has its effects on.
package activitypub

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/semelhq/semel/door/activitypub/httpsig"
	"github.com/semelhq/semel/internal/check"
)

// media is the type of activities and actors.
const media = "application/activity+json"

var (
	//go:embed requirements.yaml
	requirements []byte
	//go:embed actor.json
	person string
	//go:embed activity.json
	activity string
)

// Kit is the kit of the document.
var Kit = check.Kit{
	Requirements: requirements,
	Short:        "Judge an inbox of ActivityPub",
	Long: `Deliver activities to an inbox of ActivityPub in the ways in which servers repeat them, and
forged ones, and say for each sentence whether it is kept, and on which clause it rests.

URL is an inbox. It fetches the keys of the check's actors by http from the address of
--actors. Its handler sends each activity by POST to the address of --provider, where the
check counts effects; without that, only answers are judged.`,
	Example: `  semel check activitypub http://127.0.0.1:8480/actors/alice/inbox`,
	Flags: []check.Flag{
		check.ProviderFlag,
		{Name: "actors", Default: "127.0.0.1:7392", Usage: "`address` of the check's actors"},
		{Name: "known-as", Usage: "`URL` that senders know the inbox by (default the argument)"},
		{Name: "type", Default: "Create", Usage: "`type` of the activities"},
	},
	Start: start,
}

// actor signs activities. Without a key it doesn't.
type actor struct {
	id     string
	key    crypto.Signer
	forges bool // it changes activities after it has signed them
}

// serve serves the document of a new actor.
func serve(mux *http.ServeMux, at, user string) (actor, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return actor{}, err
	}
	der, _ := x509.MarshalPKIXPublicKey(&key.PublicKey) // such a key has a form
	text, _ := json.Marshal(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	a := actor{id: at + "/" + user, key: key}
	document := strings.NewReplacer("{id}", a.id, "{user}", user, "{pem}", string(text)).Replace(person)
	mux.HandleFunc("/"+user, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", media)
		_, _ = io.WriteString(w, document)
	})
	return a, nil
}

// note is an activity. Its name is in its id, so that a handler that sends only that is counted too.
type note struct{ name, id, actor, object string }

// kit is one run.
type kit struct {
	*check.Bench
	inbox     string // as its senders know it
	one, two  actor
	forms     []string // of signatures, which the inbox understands
	delivered atomic.Int64
	arrived   bool // an effect has
}

// note makes a new one of the first actor.
func (k *kit) note() note {
	name := check.Name()
	return note{name, k.one.id + "/activities/" + name, k.one.id, name}
}

// signed is an activity with a header that has an actor's signature, by turns in each form.
func (k *kit) signed(n note, by actor) (text string, header http.Header, err error) {
	text = strings.NewReplacer("{id}", n.id, "{type}", k.Flag("type"), "{actor}", n.actor, "{object}", n.object).Replace(activity)
	text = strings.Replace(text, `"id": "", `, "", 1)
	r, err := http.NewRequest(http.MethodPost, k.inbox, http.NoBody)
	if err != nil {
		return "", nil, err
	}
	r.Header.Set("Content-Type", media)
	if by.key != nil {
		form := k.forms[int(k.delivered.Add(1))%len(k.forms)]
		err = httpsig.Sign(r, []byte(text), httpsig.SignOptions{KeyID: by.id + "#main-key", Key: by.key, Form: form})
	}
	if by.forges {
		text = strings.Replace(text, "this inbox", "another inbox", 1)
	}
	r.Header.Set("Host", r.URL.Host)
	return text, r.Header, err
}

// deliver delivers an activity that an actor signs.
func (k *kit) deliver(ctx context.Context, n note, by actor) check.Answer { return k.ready(n, by)(ctx) }

// ready signs an activity, which takes a while, and returns what delivers it.
func (k *kit) ready(n note, by actor) func(context.Context) check.Answer {
	text, header, err := k.signed(n, by)
	return func(ctx context.Context) check.Answer {
		if err != nil {
			return check.Answer{Err: err}
		}
		return k.Post(ctx, "", text, header)
	}
}

// settle delivers an activity until the inbox doesn't ask to deliver it again.
func (k *kit) settle(ctx context.Context, n note, by actor) check.Answer {
	return check.Until(ctx, k.Bench, func() (check.Answer, bool) {
		a := k.deliver(ctx, n, by)
		return a, a.Err == nil && !a.Later()
	})
}
