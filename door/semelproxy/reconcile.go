package semelproxy

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/finding"
	"github.com/semelhq/semel/internal/settle"
	"github.com/semelhq/semel/safehttp"
	"github.com/semelhq/semel/store"
)

// Finding is an upstream's JSON about a call.
type Finding = finding.Finding

const (
	// maxFinding is the longest finding to read, in bytes.
	maxFinding = 4 << 20
	// reconcileTimeout bounds one request.
	reconcileTimeout = 10 * time.Second
)

// ReconcileHTTP settles held calls by asking a URL about them:
//
//	GET url?operation=NAME&key=KEY&tenant=TENANT&attempt=N&started_at=TIME&effect_key=KEY
//
// It has an effect_key if the upstream call was in the ledger, and tenant if there is one. The
// request must not change anything. Answer it with 200 and a [Finding]. Any other status, 404
// included, is ignored: the record stays held, and the proxy asks again after
// Operation.ReconcileEvery.
//
// An upstream that answers aborted promises not to execute the request, even if it is still on
// its way.
//
// It follows no redirects. base makes the connections; nil makes them to the URL itself, even
// if the environment names a proxy.
func ReconcileHTTP(u *url.URL, base http.RoundTripper) semel.Reconciler {
	client := &safehttp.Client{Base: base, Timeout: reconcileTimeout, MaxAnswer: maxFinding}
	return ReconcileBy(func(ctx context.Context, held *semel.Record) (*Finding, error) {
		f, err := ask(ctx, client, u, held)
		if err != nil {
			return nil, fmt.Errorf("semelproxy: reconcile: %w", err)
		}
		return f, nil
	}, "")
}

// ReconcileBy settles held calls by a function that finds out their outcomes without repeating
// them. An error leaves the call held. who names, for people, the one that it asks; it may be
// empty.
func ReconcileBy(ask func(ctx context.Context, held *semel.Record) (*Finding, error), who string) semel.Reconciler {
	return settle.By(ask, settle.Form{
		Who: who, Source: "the upstream", Effect: UpstreamEffect, Refused: store.EffectConfirmed,
		Result: func(f *Finding) semel.Result { return semelhttp.NewResult(f.Status, f.Headers, f.Body) },
		Words: func(f *Finding) (code, text string) {
			if f.Status != 0 {
				code = strconv.Itoa(f.Status)
			}
			return code, ""
		},
	})
}

func ask(ctx context.Context, client *safehttp.Client, u *url.URL, held *semel.Record) (*Finding, error) {
	target := *u
	q := target.Query()
	q.Set("operation", held.ID.Operation)
	q.Set("key", held.ID.Key)
	if held.ID.Tenant != "" {
		q.Set("tenant", held.ID.Tenant)
	}
	q.Set("attempt", strconv.Itoa(held.Attempt))
	if at, err := held.StartedAt.MarshalText(); err == nil {
		q.Set("started_at", string(at))
	}
	for _, ef := range held.Effects {
		if ef.Name == UpstreamEffect {
			q.Set("effect_key", ef.Key)
		}
	}
	target.RawQuery = q.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	return finding.Ask(client, r)
}
