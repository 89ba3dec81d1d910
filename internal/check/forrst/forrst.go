// Package forrst judges implementations of Forrst's idempotency extension over HTTP. It is the outside
// system that their functions have effects on.
package forrst

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/check"
	"github.com/semelhq/semel/internal/jsonscan"
)

var (
	//go:embed requirements.yaml
	requirements []byte
	//go:embed call.json
	request string
)

// Kit is the kit of the extension.
var Kit = check.Kit{
	Requirements: requirements,
	Short:        "Judge an implementation of Forrst's idempotency extension",
	Long: `Call functions over Forrst in the ways in which clients retry, and say for each sentence
of the idempotency extension whether it is kept, and on which clause it rests.

URL is where calls are posted. The implementation has the functions payments.charge,
with the versions 1.0.0 and 2.0.0, and payments.refund 1.0.0. Each sends its call by
POST to the address of --provider, where the check counts effects, and returns the
result or the errors that it gets there.`,
	Example: `  semel check forrst http://127.0.0.1:8480/forrst --header "Authorization: Bearer $TOKEN"`,
	Flags:   []check.Flag{check.ProviderFlag},
	Start:   start,
}

// Codes of errors. For the last one the provider breaks its connection.
const processing, conflict, invalid, denied, broken = "IDEMPOTENCY_PROCESSING", "IDEMPOTENCY_CONFLICT", "INVALID_ARGUMENTS", "UNAUTHORIZED", "BROKEN"

var simulated = regexp.MustCompile(`"simulate":\s*"(\w+)"`)

// provide answers as a service that speaks Forrst, and lacks the extension.
func provide(w http.ResponseWriter, name, body string, n int) {
	said := fmt.Sprintf(`"result":{"charge_id":"ch_%s_%d","status":"succeeded"}`, name, n)
	if m := simulated.FindStringSubmatch(body); m != nil && m[1] == broken {
		panic(http.ErrAbortHandler)
	} else if m != nil {
		said = fmt.Sprintf(`"result":null,"errors":[{"code":%q,"message":"The check has asked for it"}]`, m[1])
	}
	fmt.Fprintf(w, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":%q,%s}`, member([]byte(body), "id"), said)
}

// call is sent in many requests. It has what call.json leaves open.
type call struct{ name, function, version, amount, simulate, options string }

// charge makes a new call, for which the provider may simulate an error.
func charge(simulate string) call {
	name := check.Name()
	return call{name, "payments.charge", "1.0.0", "100", simulate, fmt.Sprintf(`"key": "charge_%s_v1"`, name)}
}

// keeping is the same call, with a ttl.
func (c call) keeping(value int, unit string) call {
	c.options += fmt.Sprintf(`, "ttl": {"value": %d, "unit": %q}`, value, unit)
	return c
}

// answer has parts of an answer: its first error, and the data of the extension.
type answer struct {
	sent, id, saw       string // the ids of the request and of the answer, and all of it
	result, error, data []byte
}

// member is a text in an object.
func member(object []byte, path ...string) string {
	s, _ := jsonscan.Text(jsonscan.At(object, path...))
	return s
}

func (a answer) ok() bool       { return a.error == nil && len(a.result) > 0 }
func (a answer) code() string   { return member(a.error, "code") }
func (a answer) status() string { return member(a.data, "status") }

// expires is when a result does. One without a time has expired long ago.
func (a answer) expires() (at time.Time) {
	_ = at.UnmarshalText([]byte(member(a.data, "expires_at")))
	return at
}

type kit struct{ *check.Bench }

// deliver sends a call in a new request.
func (k *kit) deliver(ctx context.Context, c call) (a answer) {
	a.sent = "req_" + rand.Text()
	fill := strings.NewReplacer("{id}", a.sent, "{name}", c.name, "{function}", c.function, "{version}", c.version, "{amount}", c.amount, "{simulate}", c.simulate, "{options}", c.options)
	got := k.Post(ctx, c.name, fill.Replace(request), nil)
	if a.saw = got.Body; got.Err != nil {
		got.Body, a.saw = "", got.String()
	}
	body := []byte(got.Body)
	a.id, a.result = member(body, "id"), jsonscan.At(body, "result")
	for a.error = range jsonscan.Items(jsonscan.At(body, "errors")) {
		break
	}
	for x := range jsonscan.Items(jsonscan.At(body, "extensions")) {
		if strings.HasSuffix(member(x, "urn"), ":ext:idempotency") {
			a.data = jsonscan.At(x, "data")
		}
	}
	return a
}

// settle sends a call until it is no longer being processed.
func (k *kit) settle(ctx context.Context, c call) answer {
	return check.Until(ctx, k.Bench, func() (answer, bool) {
		a := k.deliver(ctx, c)
		return a, a.code() != processing
	})
}

func start(ctx context.Context, b *check.Bench) ([]check.Group, error) {
	provider, err := b.Provide(ctx, provide)
	if err != nil {
		return nil, err
	}
	k, c := &kit{b}, charge("")
	if a := k.settle(ctx, c); !a.ok() || k.Effects(c.name) == 0 {
		return nil, fmt.Errorf("the function payments.charge gets %s, and %d effects have come to %s: let it send its call there, and return the result", a.saw, k.Effects(c.name), provider)
	}
	return []check.Group{
		check.Ask("first", "processed data id required patterns", k.first),
		check.Ask("duplicates", "once result data apart", k.duplicates),
		check.Ask("scope", "version function", k.scope, "duplicates"),
		check.Ask("concurrent", "once answers", k.concurrent, "duplicates"),
		check.Ask("processing", "refused once ends", k.processing, "duplicates"),
		check.Ask("conflict", "refused hash kept", k.conflict, "duplicates"),
		check.Ask("ttl", "default asked unchanged expired", k.ttl, "duplicates"),
		check.Ask("errors", "cached again unknown", k.errors, "duplicates"),
	}, nil
}

func (k *kit) first(ctx context.Context) {
	c, bare := charge(""), charge("")
	a := k.settle(ctx, c)
	k.Holds("first.processed", a.ok() && a.status() == "processed", "it gets %s", a.saw)
	k.Happened("first.processed", c.name, 1)
	k.Holds("first.data", strings.Contains(c.options, member(a.data, "key")) && member(a.data, "original_request_id") == a.sent && a.expires().After(time.Now()), "after %s the data is %s", a.sent, a.data)
	k.Holds("first.id", a.id == a.sent, "the request %s gets the id %q", a.sent, a.id)
	bare.options = ""
	a = k.deliver(ctx, bare)
	k.Holds("first.required", a.error != nil, "it gets %s", a.saw)
	k.Happened("first.required", bare.name, 0)
	for _, pattern := range []string{"order_%s_1702500000", "charge_%s_attempt1", "reserve_%s_order456", "550e8400-e29b-41d4-a716-%.6x"} {
		c := charge("")
		c.options = fmt.Sprintf(`"key": "`+pattern+`"`, c.name[20:])
		a := k.settle(ctx, c)
		k.Holds("first.patterns", a.ok(), "with %s it gets %s", c.options, a.saw)
	}
}

func (k *kit) duplicates(ctx context.Context) {
	c, other := charge(""), charge("")
	first := k.settle(ctx, c)
	for range 4 {
		a := k.settle(ctx, c)
		k.Holds("duplicates.result", a.ok() && bytes.Equal(a.result, first.result), "first it is %s, and then %s", first.saw, a.saw)
		k.Holds("duplicates.data", a.id == a.sent && a.status() == "cached" && member(a.data, "original_request_id") == first.sent && member(a.data, "cached_at") != "" && a.expires().Equal(first.expires()),
			"the request %s after %s gets %s", a.sent, first.sent, a.saw)
	}
	k.Happened("duplicates.once", c.name, 1)
	k.settle(ctx, other)
	k.Happened("duplicates.apart", other.name, 1)
}

func (k *kit) scope(ctx context.Context) {
	c := charge("")
	k.settle(ctx, c)
	c.version = "2.0.0"
	k.Holds("scope.version", k.settle(ctx, c).status() == "processed", "its status isn't processed")
	k.Happened("scope.version", c.name, 2)
	c = charge("")
	k.settle(ctx, c)
	c.function = "payments.refund"
	k.Holds("scope.function", k.settle(ctx, c).status() == "processed", "its status isn't processed")
	k.Happened("scope.function", c.name, 2)
}

func (k *kit) concurrent(ctx context.Context) {
	c := charge("")
	answers := check.Together(50, func() answer { return k.deliver(ctx, c) })
	final := k.settle(ctx, c)
	k.Happened("concurrent.once", c.name, 1)
	for _, a := range append(answers, final) {
		k.Holds("concurrent.answers", a.code() == processing || a.ok() && bytes.Equal(a.result, final.result), "one gets %s, and later ones %s", a.saw, final.saw)
	}
}

func (k *kit) processing(ctx context.Context) {
	c := charge("")
	var first, a answer
	k.Meanwhile(ctx, c.name, func() { first = k.deliver(ctx, c) }, func(ctx context.Context) { a = k.deliver(ctx, c) })
	details := jsonscan.At(a.error, "details")
	k.Holds("processing.refused", a.code() == processing && member(details, "key") != "" && jsonscan.At(details, "retry_after", "value") != nil && (a.data == nil || a.status() == "processing"), "it gets %s", a.saw)
	k.Happened("processing.once", c.name, 1)
	a = k.settle(ctx, c)
	k.Holds("processing.ends", first.ok() && bytes.Equal(a.result, first.result), "the first request gets %s, and a later one %s", first.saw, a.saw)
}

func (k *kit) conflict(ctx context.Context) {
	c := charge("")
	first, other := k.settle(ctx, c), c
	other.amount = "999"
	a := k.deliver(ctx, other)
	k.Holds("conflict.refused", a.code() == conflict && (a.data == nil || a.status() == "conflict"), "it gets %s", a.saw)
	k.Happened("conflict.refused", c.name, 1)
	k.Holds("conflict.hash", member(a.error, "details", "original_arguments_hash") != "", "the error is %s", a.error)
	a = k.settle(ctx, c)
	k.Holds("conflict.kept", a.ok() && bytes.Equal(a.result, first.result), "first it is %s, and then %s", first.saw, a.saw)
}

func (k *kit) ttl(ctx context.Context) {
	c, short := charge(""), charge("").keeping(1, "second")
	lasts := func(id string, a answer, want time.Duration) {
		k.Holds(id, time.Until(a.expires()).Round(time.Minute) == want, "it expires in %v, and not in %v", time.Until(a.expires()), want)
	}
	first := k.settle(ctx, c)
	lasts("ttl.default", first, 24*time.Hour)
	lasts("ttl.asked", k.settle(ctx, charge("").keeping(1, "hour")), time.Hour)
	a := k.settle(ctx, c.keeping(1, "hour"))
	k.Holds("ttl.unchanged", a.status() == "cached" && a.expires().Equal(first.expires()), "first it is %s, and then %s", first.saw, a.saw)
	if a = k.settle(ctx, short); time.Until(a.expires()) > 3*time.Second {
		k.Unseen("ttl.expired", "a result with the ttl of a second is kept until "+a.expires().String())
		return
	}
	a = check.Until(ctx, k.Bench, func() (answer, bool) {
		<-time.After(time.Until(a.expires()))
		a := k.settle(ctx, short)
		return a, a.status() == "processed"
	})
	k.Holds("ttl.expired", a.status() == "processed", "it gets %s", a.saw)
	k.Happened("ttl.expired", short.name, 2)
}

func (k *kit) errors(ctx context.Context) {
	kept, fresh, open := charge(invalid), charge(denied), charge(broken)
	first, a := k.settle(ctx, kept), k.settle(ctx, kept)
	k.Holds("errors.cached", first.code() == invalid && bytes.Equal(a.error, first.error) && a.status() == "cached", "first it is %s, and then %s", first.saw, a.saw)
	k.Happened("errors.cached", kept.name, 1)
	for range 2 {
		k.settle(ctx, fresh)
		k.deliver(ctx, open)
	}
	k.Happened("errors.again", fresh.name, 2)
	k.Happened("errors.unknown", open.name, 1)
}
