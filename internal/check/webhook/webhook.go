// Package webhook judges receivers of webhooks. It is the sender, and the outside system that
// receivers have effects on.
package webhook

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/internal/check"
)

var (
	//go:embed requirements.yaml
	requirements []byte
	//go:embed deliveries
	deliveries embed.FS
)

// Kit is the kit of receivers.
var Kit = check.Kit{
	Requirements: requirements,
	Short:        "Judge a receiver of webhooks",
	Long: `Deliver webhooks as a sender and the network do: again, at once, forged, late, or cut off.
Say for each sentence about receivers whether it is kept, and on which clause and which
paragraph of the sender it rests.

URL is where deliveries are posted, signed with --secret in the way of --source. For each
event that it handles, the receiver sends the event by POST to the address of --provider,
where the check counts effects, and has failed to handle it if the answer isn't 2xx.

The sender is standard-webhooks, stripe, github or shopify. With --delivery it is any
that signs by HMAC: the file has a delivery in its wire form, and {{unique}} in place of
what each event has of its own.`,
	Example: `  semel check webhook http://127.0.0.1:8480/webhooks/stripe --source stripe --secret "$SECRET"`,
	Flags: []check.Flag{check.ProviderFlag,
		{Name: "source", Default: "standard-webhooks", Usage: "who signs: `sender`, see above"},
		{Name: "secret", Usage: "`secret` that the receiver has for the sender"},
		{Name: "delivery", Usage: "`file` with a delivery, see above"},
	},
	Start: start,
}

type kit struct {
	*check.Bench
	source  *webhook.Source
	form    string
	failing sync.Map // names of events that the provider refuses at first
}

// event has its name in its body and in what identifies it.
type event struct {
	name string
	webhook.Delivery
}

func start(ctx context.Context, b *check.Bench) ([]check.Group, error) {
	k := &kit{Bench: b}
	source, err := webhook.Builtin(k.Flag("source"))
	if err != nil {
		return nil, new(check.UsageError(err.Error()))
	}
	form, err := deliveries.ReadFile("deliveries/" + source.Name + ".http")
	if file := k.Flag("delivery"); file != "" {
		form, err = os.ReadFile(file)
	}
	if k.source, k.form = source, string(form); err == nil {
		e := k.event()
		err = source.Sign(&e.Delivery, k.Flag("secret"), k.URL(), time.Now())
	}
	if err != nil {
		return nil, new(check.UsageError(fmt.Sprintf("--source, --secret and --delivery make no delivery: %v", err)))
	}
	provider, err := b.Provide(ctx, func(w http.ResponseWriter, name, _ string, n int) {
		if _, failing := k.failing.Load(name); failing && n == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	if err != nil {
		return nil, err
	}
	e := k.event()
	if a := k.settle(ctx, e); !a.OK() || !k.Arrives(ctx, e.name, 1) {
		return nil, fmt.Errorf("a delivery of %s gets %s, and %d effects have come to %s: let each event that is handled be posted there", source.Name, a, k.Effects(e.name), provider)
	}
	return []check.Group{
		check.Ask("signature", "accepted forged missing old unused", k.signature),
		check.Ask("duplicates", "once answered apart", k.duplicates),
		check.Ask("concurrent", "once answered", k.concurrent, "duplicates"),
		check.Ask("conflict", "once kept", k.conflict, "duplicates"),
		check.Ask("failures", "again", k.failures),
		check.Ask("gone", "half left answered later", k.gone, "duplicates"),
	}, nil
}

// event makes a new event, which isn't signed.
func (k *kit) event() event {
	name := check.Name()
	c, err := webhook.ParseCapture([]byte(strings.ReplaceAll(k.form, "{{unique}}", name)))
	if err != nil {
		return event{} // which can't be signed
	}
	return event{name, c.Delivery}
}

// signed is an event as it is delivered at a time.
func (k *kit) signed(e event, at time.Time) event {
	e.Header = e.Header.Clone()
	_ = k.source.Sign(&e.Delivery, k.Flag("secret"), k.URL(), at) // which was possible at the start
	return e
}

// changed has another content under the same id.
func (e event) changed() event {
	e.Body = append(bytes.TrimSuffix(bytes.TrimSpace(bytes.Clone(e.Body)), []byte("}")), `,"changed":true}`...)
	return e
}

// post delivers an event as it is.
func (k *kit) post(ctx context.Context, e event) check.Answer {
	return k.Post(ctx, "", string(e.Body), e.Header)
}

// settle delivers an event until the receiver takes it.
func (k *kit) settle(ctx context.Context, e event) check.Answer {
	return check.Until(ctx, k.Bench, func() (check.Answer, bool) {
		a := k.post(ctx, k.signed(e, time.Now()))
		return a, a.OK()
	})
}

// accepts judges that the receiver accepts a delivery.
func (k *kit) accepts(id string, a check.Answer) { k.Holds(id, a.OK(), "it gets %s", a) }

// had judges how many effects an event had.
func (k *kit) had(ctx context.Context, id string, e event, want int) {
	k.Settled(ctx, id, e.name, want, func() string {
		later := k.event()
		k.settle(ctx, later)
		return later.name
	})
}

func (k *kit) signature(ctx context.Context) {
	e := k.event()
	refused := func(id string, e event) {
		a := k.post(ctx, e)
		k.Holds(id, a.Err == nil && a.Status/100 == 4, "it gets %s", a)
		k.had(ctx, id, e, 0)
	}
	forged := k.signed(e, time.Now())
	forged.Body = e.changed().Body
	refused("signature.forged", forged)
	refused("signature.missing", e)
	if k.source.Timestamp.In == "" {
		k.Unseen("signature.old", "the sender signs no time")
	} else {
		refused("signature.old", k.signed(e, time.Now().Add(-time.Hour)))
	}
	k.accepts("signature.accepted", k.post(ctx, k.signed(e, time.Now())))
	k.had(ctx, "signature.unused", e, 1)
}

func (k *kit) duplicates(ctx context.Context) {
	e := k.event()
	k.settle(ctx, e)
	for i := range 4 {
		k.accepts("duplicates.answered", k.post(ctx, k.signed(e, time.Now().Add(-time.Duration(i)*time.Second))))
	}
	k.had(ctx, "duplicates.once", e, 1)
	other := k.event()
	k.settle(ctx, other)
	k.had(ctx, "duplicates.apart", other, 1)
}

func (k *kit) concurrent(ctx context.Context) {
	e := k.event()
	check.Together(50, func() check.Answer { return k.post(ctx, k.signed(e, time.Now())) })
	k.accepts("concurrent.answered", k.settle(ctx, e))
	k.had(ctx, "concurrent.once", e, 1)
}

func (k *kit) conflict(ctx context.Context) {
	e := k.event()
	k.settle(ctx, e)
	k.post(ctx, k.signed(e.changed(), time.Now()))
	k.had(ctx, "conflict.once", e, 1)
	k.accepts("conflict.kept", k.settle(ctx, e))
	k.had(ctx, "conflict.kept", e, 1)
}

func (k *kit) failures(ctx context.Context) {
	e := k.event()
	k.failing.Store(e.name, true)
	k.settle(ctx, e)
	k.had(ctx, "failures.again", e, 2)
}

func (k *kit) gone(ctx context.Context) {
	half, e, last := k.event(), k.event(), k.event()
	k.Half(ctx, string(half.Body), k.signed(half, time.Now()).Header)
	k.had(ctx, "gone.half", half, 0)
	k.settle(ctx, half)
	k.had(ctx, "gone.half", half, 1)
	impatient, leave := context.WithCancel(ctx)
	k.Meanwhile(ctx, e.name, func() { k.post(impatient, k.signed(e, time.Now())) }, func(ctx context.Context) {
		leave()
		again, cancel := context.WithTimeout(ctx, time.Second)
		k.post(again, k.signed(e, time.Now()))
		cancel()
	})
	k.accepts("gone.answered", k.settle(ctx, e))
	k.had(ctx, "gone.left", e, 1)
	k.settle(ctx, last)
	k.had(ctx, "gone.later", last, 1)
}
