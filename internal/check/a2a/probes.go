package a2a

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"

	"github.com/semelhq/semel/internal/check"
)

// start becomes the provider, and finds out which version the agent speaks, and whether effects
// arrive.
func start(ctx context.Context, b *check.Bench) ([]check.Group, error) {
	if _, err := b.Provide(ctx, func(http.ResponseWriter, string, string, int) {}); err != nil {
		return nil, err
	}
	k, m := &kit{Bench: b}, newMessage()
	var first answer
	for _, k.version = range versions {
		if first = k.deliver(ctx, m, k.send); first.fault == nil {
			break
		}
	}
	if first.fault != nil {
		return nil, fmt.Errorf("a message to the agent gets %s", first)
	}
	k.Arrives(ctx, m.name, 1)
	k.ways = map[string]post{k.send: k.Leave}
	return []check.Group{
		check.Ask("duplicates", "task once apart", k.duplicates),
		check.Ask("concurrent", "task once", k.concurrent, "duplicates"),
		check.Ask("content", "refused once kept", k.content, "duplicates"),
		check.Ask("stream", "task once", k.streams, "duplicates"),
		check.Ask("gone", "task once", k.gone, "duplicates"),
		check.Ask("task", "state continued", k.tasks),
	}, nil
}

// had judges how many effects a text had.
func (k *kit) had(ctx context.Context, id string, m message, want int) {
	k.Settled(ctx, id, m.name, want, func() string {
		m := newMessage()
		k.settle(ctx, m, k.send)
		return m.name
	})
}

// same judges that two answers tell of one task.
func (k *kit) same(id string, first, again answer) {
	k.Holds(id, first.fault == nil && again.fault == nil && first.heard() == again.heard(), "first it gets %s, and then %s", first, again)
}

func (k *kit) duplicates(ctx context.Context) {
	m, id := newMessage(), rand.Text()
	first := k.ask(ctx, k.Post, id, k.send, m.id, k.params(m))
	for range 2 {
		k.same("duplicates.task", first, k.settle(ctx, m, k.send))
	}
	k.had(ctx, "duplicates.once", m, 1)
	other := message{id: rand.Text(), name: m.name}
	apart := k.ask(ctx, k.Post, id, k.send, other.id, k.params(other))
	k.Holds("duplicates.apart", apart.fault == nil && apart.heard() != first.heard(), "the first gets %s, and the second %s", first, apart)
}

func (k *kit) concurrent(ctx context.Context) {
	m := newMessage()
	answers := check.Together(10, func() answer { return k.deliver(ctx, m, k.send) })
	final := k.settle(ctx, m, k.send)
	for _, a := range answers {
		if a.heard() != "" {
			k.same("concurrent.task", a, final)
		}
	}
	k.Holds("concurrent.task", final.fault == nil, "afterwards it gets %s", final)
	k.had(ctx, "concurrent.once", m, 1)
}

func (k *kit) content(ctx context.Context) {
	m := newMessage()
	other := message{id: m.id, name: check.Name()}
	first := k.settle(ctx, m, k.send)
	a := k.deliver(ctx, other, k.send)
	k.Holds("content.refused", a.heard() == "", "it gets %s, and the first text got %s", a, first)
	k.had(ctx, "content.once", other, 0)
	k.same("content.kept", first, k.settle(ctx, m, k.send))
}

func (k *kit) streams(ctx context.Context) {
	m := newMessage()
	first := k.deliver(ctx, m, k.stream)
	if first.fault != nil {
		for _, id := range []string{"stream.task", "stream.once"} {
			k.Unseen(id, "a stream gets "+first.String())
		}
		return
	}
	k.ways[k.stream] = k.LeaveStream
	k.same("stream.task", first, k.settle(ctx, m, k.stream))
	k.same("stream.task", first, k.settle(ctx, m, k.send))
	k.had(ctx, "stream.once", m, 1)
}

// gone: what a sender has heard of before it left is what its retries get. One that doesn't stream
// has mostly heard of nothing.
func (k *kit) gone(ctx context.Context) {
	for method, leave := range k.ways {
		m := newMessage()
		left := k.ask(ctx, leave, rand.Text(), method, m.id, k.params(m))
		first := k.settle(ctx, m, method)
		if left.heard() != "" {
			k.Holds("gone.task", left.heard() == first.heard(), "it has heard of %s, and then gets %s", left, first)
		}
		k.same("gone.task", first, k.settle(ctx, m, method))
		k.had(ctx, "gone.once", m, 1)
	}
}

func (k *kit) tasks(ctx context.Context) {
	first := k.settle(ctx, newMessage(), k.send)
	if first.task == "" {
		for _, id := range []string{"task.state", "task.continued"} {
			k.Unseen(id, "the agent answers with messages in place of tasks")
		}
		return
	}
	state := k.ask(ctx, k.Post, rand.Text(), k.get, "", fmt.Sprintf(`"id":%q`, first.task))
	k.Holds("task.state", state.task == first.task, "it gets %s", state)
	m := newMessage()
	m.task = first.task
	a := k.deliver(ctx, m, k.send)
	k.Holds("task.continued", a.task == "" || a.task == first.task, "it gets %s, and names %s", a, first.task)
}
