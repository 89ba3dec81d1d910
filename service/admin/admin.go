// Package admin gives the operators of a program that embeds the engine what operators of
// 'semel serve' have: they can list records, look at one, and settle, release, confirm or
// purge it. Mount its handler beside your own. It speaks the same API, so 'semel records --url'
// and package client work with it:
//
//	h, err := admin.Handler(engine, admin.Options{
//		Prefix: "/admin/semel",
//		Authorize: func(r *http.Request) (admin.Caller, error) {
//			user, err := session(r)
//			if err != nil || !user.OnCall {
//				return admin.Caller{}, errors.New("operators only")
//			}
//			return admin.Caller{Principal: user.Name, Role: admin.Admin, AllTenants: true}, nil
//		},
//	})
//	mux.Handle("/admin/semel/", h)
package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/service/api"
)

// Caller is who asks, as Options.Authorize found out. A caller sees the records of their
// tenant, which may be the empty one; one with AllTenants sees all. An Admin with
// neither is refused: your calls have tenants, and they would see none of them.
type Caller = api.Caller

// The roles of a [Caller].
const (
	Viewer   = api.Viewer   // lists records and looks at them
	Operator = api.Operator // also settles, releases, confirms and purges them
	Admin    = api.Admin    // an Operator
)

// Options configures [Handler].
type Options struct {
	// Authorize identifies the sender of a request and their role. The caller gets its error with a
	// 401, text included. Required: whoever gets through can decide whether a payment
	// happened. A browser's cookie alone isn't enough: make sure that other sites can't
	// make the browser send a request.
	Authorize func(r *http.Request) (Caller, error)
	// Prefix is the path where you mount the handler, without a slash at its end, such as
	// "/admin/semel". Defaults to none.
	Prefix string
	// Guard is the guard of your routes, so that calls of its operations are settled with
	// HTTP answers. Optional.
	Guard *semelhttp.Guard
	// Evidence is the log of the engine, for 'semel evidence --url'. Optional.
	Evidence *evidence.Log
}

// Handler serves the records of an engine. It may be used concurrently.
func Handler(engine *semel.Engine, opts Options) (http.Handler, error) {
	if opts.Authorize == nil {
		return nil, errors.New("admin: Handler needs Options.Authorize: without it anybody could settle a call")
	}
	if p := opts.Prefix; p != "" && (!strings.HasPrefix(p, "/") || strings.HasSuffix(p, "/")) {
		return nil, fmt.Errorf("admin: the prefix %q does not begin with a slash, or ends with one", p)
	}
	a, err := api.New(api.Options{
		Engine: engine, BaseURL: opts.Prefix, Evidence: opts.Evidence, Guard: opts.Guard,
		Identify: func(r *http.Request) (api.Caller, error) {
			c, err := opts.Authorize(r)
			switch {
			case err != nil:
			case c.Role < Viewer:
				err = errors.New("the caller has no role here")
			case c.Role == Admin && c.Tenant == "" && !c.AllTenants:
				err = errors.New("the caller is an admin without a tenant: set AllTenants, or they would see no record of any tenant")
			}
			return c, err
		},
	})
	if err != nil {
		return nil, err
	}
	// Only what operators need: your program runs its calls itself.
	mux := http.NewServeMux()
	for _, path := range []string{"/v1/records", "/v1/records/", "/v1/evidence/", "/problems/"} {
		mux.Handle(path, a.Admin())
	}
	return http.StripPrefix(opts.Prefix, mux), nil
}
