package activitypub

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/semelhq/semel/door/activitypub/httpsig"
	"github.com/semelhq/semel/internal/check"
)

// start becomes the provider and another server, and finds out what the inbox understands.
func start(ctx context.Context, b *check.Bench) ([]check.Group, error) {
	k := &kit{Bench: b, inbox: cmp.Or(b.Flag("known-as"), b.URL())}
	if _, err := b.Provide(ctx, func(http.ResponseWriter, string, string, int) {}); err != nil {
		return nil, err
	}
	mux := new(http.ServeMux)
	at, err := b.Serve(ctx, "actors", mux)
	for user, a := range map[string]*actor{"one": &k.one, "two": &k.two} {
		if err == nil {
			*a, err = serve(mux, at, user)
		}
	}
	if err != nil {
		return nil, err
	}
	var last check.Answer
	var understood []string
	for _, form := range []string{httpsig.FormCavage, httpsig.FormRFC9421} {
		k.forms = []string{form}
		n := k.note()
		if last = k.settle(ctx, n, k.one); last.OK() {
			understood = append(understood, form)
			k.arrived = k.arrived || k.Arrives(ctx, n.name, 1)
		}
	}
	if k.forms = understood; understood == nil {
		return nil, fmt.Errorf("an activity of the type %s that %s has signed gets %s: let the inbox fetch keys by http from there", b.Flag("type"), k.one.id, last)
	}
	return []check.Group{
		check.Ask("duplicates", "once status accepted apart", k.duplicates),
		check.Ask("concurrent", "once answers", k.concurrent, "duplicates"),
		check.Ask("gone", "once", k.gone, "duplicates"),
		check.Ask("content", "once source kept", k.content, "duplicates"),
		check.Ask("id", "missing malformed", k.ids),
		check.Ask("signature", "missing wrong changed stranger spent", k.signatures),
		check.Ask("delay", "answer", k.delay, "duplicates"),
	}, nil
}

// handled judges how often an activity was handled.
func (k *kit) handled(ctx context.Context, id string, n note, want int) {
	k.Settled(ctx, id, n.name, want, func() string {
		n := k.note()
		k.settle(ctx, n, k.one)
		return n.name
	})
}

func (k *kit) duplicates(ctx context.Context) {
	n, other := k.note(), k.note()
	first := k.settle(ctx, n, k.one)
	k.Holds("duplicates.accepted", first.Status == http.StatusAccepted, "it is %s", first)
	for range 4 {
		again := k.settle(ctx, n, k.one)
		k.Holds("duplicates.status", again.Status == first.Status, "the first delivery gets %s, and another %s", first, again)
	}
	k.handled(ctx, "duplicates.once", n, 1)
	other.object = n.object
	k.settle(ctx, other, k.one)
	k.handled(ctx, "duplicates.apart", other, 1)
}

func (k *kit) concurrent(ctx context.Context) {
	n := k.note()
	deliver := k.ready(n, k.one)
	answers := check.Together(50, func() check.Answer { return deliver(ctx) })
	final := k.settle(ctx, n, k.one)
	for _, a := range answers {
		k.Holds("concurrent.answers", a.Later() || a.OK() && a.Status == final.Status, "one gets %s, and later ones %s", a, final)
	}
	k.handled(ctx, "concurrent.once", n, 1)
}

func (k *kit) gone(ctx context.Context) {
	n := k.note()
	if text, header, err := k.signed(n, k.one); err == nil {
		k.Leave(ctx, "", text, header)
	}
	for range 2 { // an inbox may forget it late
		k.settle(ctx, n, k.one)
		k.handled(ctx, "gone.once", n, 1)
	}
}

func (k *kit) content(ctx context.Context) {
	for id, by := range map[string]actor{"content.once": k.one, "content.source": k.two} {
		n := k.note()
		first := k.settle(ctx, n, k.one)
		k.settle(ctx, note{n.name, n.id, by.id, check.Name()}, by)
		k.handled(ctx, id, n, 1)
		again := k.settle(ctx, n, k.one)
		k.Holds("content.kept", again.Status == first.Status, "it gets %s, and before %s", again, first)
	}
}

// refused judges that a delivery is refused, and isn't handled.
func (k *kit) refused(ctx context.Context, id string, n note, by actor) {
	a := k.deliver(ctx, n, by)
	if k.Holds(id, a.Err == nil && !a.OK(), "it gets %s", a); k.arrived {
		k.handled(ctx, id, n, 0)
	}
}

func (k *kit) ids(ctx context.Context) {
	for id, value := range map[string]string{"id.missing": "", "id.malformed": "semel-checks-this"} {
		n := k.note()
		n.id = value
		k.refused(ctx, id, n, k.one)
	}
}

func (k *kit) signatures(ctx context.Context) {
	k.refused(ctx, "signature.missing", k.note(), actor{})
	k.refused(ctx, "signature.wrong", k.note(), actor{id: k.one.id, key: k.two.key})
	k.refused(ctx, "signature.changed", k.note(), actor{id: k.one.id, key: k.one.key, forges: true})
	k.refused(ctx, "signature.stranger", k.note(), k.two)
	n := k.note()
	if forged := k.deliver(ctx, note{n.name, n.id, n.actor, check.Name()}, actor{}); forged.OK() {
		k.Unseen("signature.spent", "a forgery gets "+forged.String())
		return
	}
	k.settle(ctx, n, k.one)
	k.handled(ctx, "signature.spent", n, 1)
}

func (k *kit) delay(ctx context.Context) {
	n, fastest := k.note(), time.Hour
	k.settle(ctx, n, k.one)
	for i := 0; i < 30 && fastest > 100*time.Millisecond; i++ {
		if began, a := time.Now(), k.deliver(ctx, n, k.one); a.OK() {
			fastest = min(fastest, time.Since(began))
		}
	}
	k.Holds("delay.answer", fastest <= 100*time.Millisecond, "the fastest takes %v", fastest)
}
