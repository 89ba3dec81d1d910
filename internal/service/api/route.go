package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/peer"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/figures"
)

// builder makes one of the two handlers.
type builder struct {
	api   *API
	admin bool
	huma  huma.API
	mux   *http.ServeMux

	handler http.Handler
	spec    func() []byte // the description, as JSON
}

// handler makes one of the two. Its description is written when somebody first asks for it.
func (a *API) handler(admin bool) *builder {
	hookHuma()
	b := &builder{api: a, admin: admin, mux: http.NewServeMux()}
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Semel Execution API", Version: "v1",
				Description: "Exactly-once effects over at-least-once delivery, for programs that run the work themselves. " +
					"Begin an execution under a key, do the work, end the execution; whoever repeats the call gets the same outcome.",
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", schemaName),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"bearer": {Type: "http", Scheme: "bearer", Description: "A static token or a JWT. Client certificates and the headers of a trusted proxy do too, where they are configured."},
				},
			},
			Security: []map[string][]string{{"bearer": {}}},
		},
		Formats:                      map[string]huma.Format{"application/json": strictJSON, "json": strictJSON},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
	}
	b.huma = huma.NewAPI(config, humago.NewAdapter(b.mux, ""))
	b.executions()
	b.records()
	b.operations()
	b.batch()
	b.evidence()
	kind := peer.Data
	if admin {
		kind = peer.Admin
		b.operatorRoutes()
		b.lookup()
		b.decisionStream()
		b.figures()
		b.conflicts()
		b.explain()
	}
	b.spec = sync.OnceValue(b.description)
	b.pages()
	b.mux.HandleFunc(nothing, b.notFound)
	b.handler = secured(b.mux, kind)
	return b
}

// schemaName names the schema of a type: evidence and figures have names that are here, too.
func schemaName(t reflect.Type, hint string) string {
	switch t {
	case reflect.TypeFor[figures.Report]():
		return "FiguresBody"
	case reflect.TypeFor[figures.Count]():
		return "Series"
	}
	name := huma.DefaultSchemaNamer(t, hint)
	for ; t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice; t = t.Elem() {
	}
	if t.PkgPath() == reflect.TypeFor[evidence.Report]().PkgPath() {
		return "Evidence" + name
	}
	return name
}

func (b *builder) description() []byte {
	described := *b.huma.OpenAPI()
	described.Servers = []*huma.Server{{URL: "/", Description: "The listener that serves this description."}}
	spec, err := json.MarshalIndent(&described, "", "  ")
	if err != nil {
		panic(err) // the routes are always the same, and a test has their description
	}
	return append(spec, '\n')
}

// secured marks every answer as Semel's, and keeps it out of caches and browsers from guessing its
// type.
func secured(h http.Handler, kind string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer.Mark(w.Header(), kind)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		h.ServeHTTP(w, r)
	})
}

// nothing is the pattern of addresses at which there is nothing.
const nothing = "/"

func (b *builder) notFound(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	probe := &http.Request{URL: r.URL, Host: r.Host}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe.Method = method
		if _, pattern := b.mux.Handler(probe); pattern != nothing {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		b.api.newProblem(semel.CodeNotFound, "there is nothing at this address").write(w)
		return
	}
	p := b.api.newProblem(door.CodeMethodNotAllowed, "")
	p.set("Allow", strings.Join(allowed, ", "))
	p.write(w)
}

var everyRoute = []semel.Code{semel.CodeInvalidCall, door.CodeUnauthorized, door.CodeUnsupportedMedia, semel.CodeStoreUnavailable, semel.CodeClosed, door.CodeOverloaded, door.CodeInternal}

var withBody = []semel.Code{door.CodeTooLarge, door.CodeUnsupportedMedia, door.CodeBodyUnreadable, door.CodeOverBudget, door.CodeBodyTooSlow}

// about describes an endpoint by its id, its tag, its method and path, and what it does.
func about(id, tag, pattern, summary, description string) huma.Operation {
	method, path, _ := strings.Cut(pattern, " ")
	return huma.Operation{OperationID: id, Tags: []string{tag}, Method: method, Path: path, Summary: summary, Description: description}
}

// route registers an endpoint for a role, with codes in addition to op's responses.
func route[I, O any](b *builder, op huma.Operation, role Role, codes []semel.Code, f func(x *exchange, in *I) (*O, error)) {
	a := b.api
	op.Metadata = map[string]any{apiKey: a, deliversKey: op.Metadata[deliversKey]}
	codes = slices.Concat(codes, everyRoute)
	if role > NoRole {
		codes = append(codes, semel.CodeForbidden)
		op.Description += " Needs the role " + role.String() + "."
	}
	most := int64(0) // of a body
	if _, ok := reflect.TypeFor[I]().FieldByName("Body"); ok {
		codes = append(codes, withBody...)
		most = cmp.Or(op.MaxBodyBytes, a.opts.bounds.body)
		op.MaxBodyBytes = -1 // oneRead has the limit
		op.BodyReadTimeout = a.opts.bounds.bodyTime
	}
	b.describe(&op, codes)
	op.Middlewares = huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(ctx)
		caller, p := a.admit(w, r, role)
		if p != nil {
			a.refused(&op, r, p)
			p.write(w)
			return
		}
		if most > 0 {
			r.Body = &oneRead{ReadCloser: r.Body, w: w, r: r, most: most}
		}
		next(huma.WithValue(ctx, exchangeKey{}, &exchange{api: a, w: w, r: r, caller: caller, admin: b.admin}))
	}}
	huma.Register(b.huma, op, func(ctx context.Context, in *I) (*O, error) {
		x := ctx.Value(exchangeKey{}).(*exchange)
		out, err := f(x, in)
		if err != nil {
			p := a.problemOf(err)
			if e, ok := errors.AsType[*semel.Error](err); ok && op.Method == http.MethodGet && p.Code == semel.CodeStoreUnavailable && e.Message == "" {
				p.Detail = "The store didn't answer, so this can't be read at the moment." // and nothing is said of calls
			}
			return nil, p
		}
		return out, nil
	})
}

// oneRead is a body that makes room for itself where huma copies it to: room that grows with
// what comes takes several times as much.
type oneRead struct {
	io.ReadCloser
	w    http.ResponseWriter
	r    *http.Request
	most int64
}

// WriteTo implements [io.WriterTo], which huma's copying uses.
func (b *oneRead) WriteTo(w io.Writer) (int64, error) {
	r := *b.r
	r.Body = b.ReadCloser
	buf := w.(*bytes.Buffer) // huma has no other
	had := buf.Len()
	err := body.ReadInto(buf, b.w, &r, b.most)
	return int64(buf.Len() - had), err
}

// admit returns the caller, or why the request isn't even read.
func (a *API) admit(w http.ResponseWriter, r *http.Request, role Role) (Caller, *problem) {
	// A page of any origin can make a browser send a body without a Content-Type, without
	// asking the server first. One that is compressed would be told that it isn't JSON.
	if r.ContentLength != 0 && (r.Header.Get("Content-Type") == "" || body.CodingOf(r.Header) != body.Plain) {
		w.Header().Set("Connection", "close") // rather than wait for the rest of the body
		return Caller{}, a.newProblem(door.CodeUnsupportedMedia, "")
	}
	caller, err := a.opts.Identify(r)
	if e, ok := errors.AsType[*semel.Error](err); ok { // the caller can't be identified at the moment
		return Caller{}, a.problemOf(e)
	}
	if err != nil {
		p := a.newProblem(door.CodeUnauthorized, err.Error())
		p.set("WWW-Authenticate", auth.Challenge(err))
		return Caller{}, p
	}
	if caller.Role < role {
		return Caller{}, a.newProblem(semel.CodeForbidden, "this needs the role "+role.String()+", and the caller's is "+caller.Role.String())
	}
	return caller, nil
}

// refused tells of a request that would deliver calls, and is refused before one is looked at.
func (a *API) refused(op *huma.Operation, r *http.Request, p *problem) {
	if op.Metadata[deliversKey] != nil {
		a.tellRefused(r, p)
	}
}

func (a *API) tellRefused(r *http.Request, p *problem) {
	tap := a.engine.Internal()
	tap.Answered(tap.Arrived(r.Context(), Name, r.Header), semel.Delivered{Code: p.Code, Status: p.Status, Err: p, ID: semel.ID{Operation: r.PathValue("operation")}})
}

// describe adds the refusals to the responses: one entry for each status, with its codes.
func (b *builder) describe(op *huma.Operation, codes []semel.Code) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	schema := b.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[problem](), true, "")
	named := map[string][]string{}
	name := func(code semel.Code, status int) {
		if of := strconv.Itoa(status); !slices.Contains(named[of], string(code)) {
			named[of] = append(named[of], string(code))
		}
	}
	for _, code := range codes {
		m, _ := door.Lookup(code)
		name(code, m.Status)
		if code == door.CodeOverloaded {
			name(code, http.StatusTooManyRequests)
		}
	}
	for status, names := range named {
		slices.Sort(names)
		op.Responses[status] = &huma.Response{
			Description: "Problem: " + strings.Join(names, ", "),
			Content:     map[string]*huma.MediaType{semelhttp.ProblemType: {Schema: schema}},
		}
	}
}

// answer describes another success of an endpoint, with the type of its body.
func answer[T any](b *builder, description string) *huma.Response {
	return &huma.Response{
		Description: description,
		Content: map[string]*huma.MediaType{
			"application/json": {Schema: b.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")},
		},
	}
}
