package ids

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/semelhq/semel/internal/check"
)

func (k *kit) duplicates(ctx context.Context) {
	c, other := k.command("charge", 4200), k.command("charge", 4200)
	first := k.settle(ctx, c)
	k.Holds("duplicates.key", first.IdempotencyKey != "", "the answer has no idempotency_key: %s", first)
	for range 4 {
		a := k.settle(ctx, c)
		k.Holds("duplicates.once", a.executed(), "a delivery gets %s", a)
		k.Holds("duplicates.key", a.IdempotencyKey == first.IdempotencyKey, "two deliveries have the keys %q and %q", first.IdempotencyKey, a.IdempotencyKey)
	}
	k.Happened("duplicates.once", c.target, 1)
	k.Holds("duplicates.key", k.settle(ctx, other).IdempotencyKey != first.IdempotencyKey, "commands about two targets have the key %q", first.IdempotencyKey)
	k.Happened("duplicates.apart", other.target, 1)
}

func (k *kit) concurrent(ctx context.Context) {
	c := k.command("charge", 1)
	answers := check.Together(50, func() answer { return k.deliver(ctx, c) })
	final := k.settle(ctx, c)
	k.Happened("concurrent.once", c.target, 1)
	k.Holds("concurrent.answers", final.executed(), "afterwards a delivery gets %s", final)
	for _, a := range answers {
		switch {
		case a.HTTP == http.StatusTooManyRequests: // the specification demands limits on duplicates elsewhere
		case a.Status != "executed" && a.Status != "processing":
			k.Holds("concurrent.answers", false, "one gets %s", a)
		case a.CommandID != final.CommandID:
			k.Holds("concurrent.answers", false, "one hears of the command %s, another of %s", a.CommandID, final.CommandID)
		}
	}
}

func (k *kit) replays(ctx context.Context) {
	c := k.command("charge", 7)
	first, again := k.settle(ctx, c), k.settle(ctx, c)
	k.Holds("replay.decision", first.Decision == "first_seen" && again.Decision == "duplicate_replayed", "the decisions are %q and %q", first.Decision, again.Decision)
	k.Holds("replay.outcome", first.OutcomeRef != "" && first.IdempotencyKey != "" && first.CommandID != "" && len(first.Outcome) != 0,
		"the answer lacks an outcome_ref, an idempotency_key, a command_id or an outcome: %s", first)
	said := func(a answer) string {
		return fmt.Sprintf("%s, command %s, key %s, outcome %s %s, summary %q", a.Status, a.CommandID, a.IdempotencyKey, a.OutcomeRef, a.Outcome, a.Summary)
	}
	k.Holds("replay.outcome", said(again) == said(first), "first it is %s, and then %s", said(first), said(again))
	k.Happened("replay.outcome", c.target, 1)
	for _, decision := range []string{"duplicate_replayed", "first_seen"} {
		k.witnessed(ctx, "replay.evidence", first.CommandID, decision, func(e artifact) string {
			switch {
			case e["command_id"] != first.CommandID || e["idempotency_key"] != first.IdempotencyKey:
				return fmt.Sprintf("is of the command %s with the key %s, and not of %s with %s", e["command_id"], e["idempotency_key"], first.CommandID, first.IdempotencyKey)
			case (e["executed"] == true) != (decision == "first_seen"):
				return fmt.Sprintf("has executed as %v", e["executed"])
			case decision == "duplicate_replayed" && e["outcome_ref"] != first.OutcomeRef:
				return fmt.Sprintf("has the outcome %s, and the answer %s", e["outcome_ref"], first.OutcomeRef)
			}
			return ""
		})
	}
}

func (k *kit) inProgress(ctx context.Context) {
	c := k.command("slow", 1)
	var a, first, second, before answer
	came := k.Meanwhile(ctx, c.target, func() { a = k.deliver(ctx, c) }, func(ctx context.Context) {
		first, second = k.deliver(ctx, c), k.deliver(ctx, c)
		before = read(k.Get(ctx, first.StatusURL))
		k.Happened("progress.once", c.target, 1)
	})
	if !came {
		k.Holds("progress.answer", false, "the command slow doesn't reach the provider in time")
		return
	}
	k.Holds("progress.answer", first.Status == "processing" && first.CommandID != "" && first.CorrelationID != "" && first.StatusURL != "",
		"a duplicate gets %s, command_id %q, correlation_id %q, status_url %q", first, first.CommandID, first.CorrelationID, first.StatusURL)
	k.Holds("progress.answer", second.Status == first.Status && second.CommandID == first.CommandID && second.StatusURL == first.StatusURL && second.CorrelationID == first.CorrelationID,
		"two duplicates hear of %s (%s) and %s (%s)", first.CommandID, first.StatusURL, second.CommandID, second.StatusURL)
	k.Holds("progress.answer", a.executed() && a.CommandID == first.CommandID, "the first delivery gets %s of the command %s, and its duplicates heard of %s", a, a.CommandID, first.CommandID)
	after := read(k.Get(ctx, first.StatusURL))
	k.Holds("progress.status", before.Status == "in_progress" && after.Status == "executed", "it was said to be %q, and then %q", before.Status, after.Status)
	k.Happened("progress.once", c.target, 1)
}

func (k *kit) collision(ctx context.Context) {
	c := k.command("charge", 1)
	c = c.with("idempotency_key", "key-of-"+c.target)
	first := k.settle(ctx, c)
	a := k.deliver(ctx, k.about(c.target, "charge", 999).with("idempotency_key", c.members["idempotency_key"]))
	k.Holds("collision.refused", first.executed(), "a command with a key of its caller gets %s", first)
	k.Holds("collision.refused", a.Status == "rejected" && a.Reason == "idempotency_conflict", "another amount under the same key gets %s", a)
	k.Holds("collision.refused", len(a.Outcome) == 0 && a.Summary == "", "the outcome of the other command is shown")
	k.Happened("collision.refused", c.target, 1)
	again := k.settle(ctx, c)
	k.Holds("collision.kept", again.executed() && again.OutcomeRef == first.OutcomeRef, "it gets %s, with the outcome %s in place of %s", again, again.OutcomeRef, first.OutcomeRef)
	k.witnessed(ctx, "collision.evidence", first.CommandID, "conflict_rejected", func(e artifact) string {
		switch {
		case e["fingerprint"] == nil || e["presented_fingerprint"] == nil || e["presented_fingerprint"] == "" || e["fingerprint"] == e["presented_fingerprint"]:
			return fmt.Sprintf("has the fingerprint %v and presented %v, and not those of both envelopes", e["fingerprint"], e["presented_fingerprint"])
		case e["executed"] == true:
			return "says that it was executed"
		}
		return ""
	})
}

func (k *kit) confirmation(ctx context.Context) {
	c, other := k.command("confirmed", 1), k.command("confirmed", 1)
	asked := k.deliver(ctx, c)
	token := asked.Confirmation.Token
	k.Holds("confirmation.asked", asked.Status == "confirmation_required" && token != "", "it gets %s, with the token %q", asked, token)
	k.Happened("confirmation.asked", c.target, 0)
	if token == "" {
		return
	}
	confirm := func(c command, token string) command {
		return c.with("command_id", asked.CommandID).with("confirmation_token", token)
	}
	a := k.deliver(ctx, confirm(c, strings.Repeat("A", len(token))))
	k.deliver(ctx, confirm(other, token))
	k.deliver(ctx, confirm(k.about(c.target, "confirmed", 2), token))
	k.deliver(ctx, confirm(c, token).with("command_id", "another"))
	k.Holds("confirmation.bound", a.Status != "executed" && a.Status != "processing", "a wrong token gets %s", a)
	k.Happened("confirmation.bound", other.target, 0)
	if k.Happened("confirmation.bound", c.target, 0); k.Effects(c.target) > 0 {
		return // what follows would only count it again
	}
	check.Together(50, func() answer { return k.deliver(ctx, confirm(c, token)) })
	final := k.settle(ctx, confirm(c, token))
	k.Holds("confirmation.once", final.executed(), "after fifty confirmations the command gets %s", final)
	k.Happened("confirmation.once", c.target, 1)
	for _, again := range []command{c, confirm(c, token)} {
		a := k.settle(ctx, again)
		k.Holds("confirmation.replayed", a.executed() && a.Decision == "duplicate_replayed" && a.Confirmation.Token == "", "a duplicate gets %s, and a token: %v", a, a.Confirmation.Token != "")
	}
}
