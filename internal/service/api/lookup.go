package api

import (
	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/lookup"
	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/internal/wire"
)

type lookupInput struct {
	Name   string `query:"q" required:"true" minLength:"1" maxLength:"8192" doc:"Anything that somebody has of a call: its key, record, execution or reference, an id of a delivery, a trace or a message, what a log says, or an attribute as NAME=VALUE or by its value alone. An asterisk at the end stands for any text, in keys and in NAME=VALUE." example:"9911"`
	Tenant string `query:"tenant" maxLength:"256" doc:"The only tenant that is searched. Defaults to the caller's. Who sees all tenants searches all records without it, and of the evidence log those of the empty tenant."`
	Cursor string `query:"cursor" maxLength:"8192" doc:"The next of the page before, with the same q."`
}

func (b *builder) lookup() {
	route(b, about("lookUp", "records", "GET /v1/lookup", "Find calls by anything that somebody has of them",
		"It looks for all kinds of names at once and says by which it found each call. What stores have an index of comes first, then every record, from the newest on. "+
			"A page ends when it has cost enough: follow next until complete, before you say that there is no call."), Viewer, []semel.Code{semel.CodeUnsupported}, lookUp)
}

func lookUp(x *exchange, in *lookupInput) (*reply[wire.Lookup], error) {
	f := lookup.Finder{Records: x.api.engine, Tenant: x.tenant(), Log: x.api.opts.Evidence,
		Facts: func(records []semel.Record) []verdict.Facts { return x.facts(records, true) }}
	if x.api.opts.Attributes != nil {
		f.Attributes = x.api.opts.Attributes()
	}
	if in.Tenant != "" {
		if f.Tenant != nil && *f.Tenant != in.Tenant {
			return nil, x.api.newProblem(semel.CodeForbidden, "the caller may see only their own tenant's records")
		}
		f.Tenant = &in.Tenant
	}
	a, err := f.Find(x.ctx(), in.Name, in.Cursor)
	if err != nil {
		return nil, err
	}
	out := &reply[wire.Lookup]{wire.Lookup{
		Found: make([]wire.Named, 0, len(a.Found)), Verdict: a.Verdict, Complete: a.Complete, Next: a.Next,
		Searched: wire.Searched{By: append([]string{}, a.By...), Records: a.Records, BackTo: a.BackTo},
	}}
	for i := range a.Found {
		rec := wire.RecordOf(&a.Found[i].Record)
		rec.Verdict = a.Found[i].Verdict
		out.Body.Found = append(out.Body.Found, wire.Named{Record: rec, By: a.Found[i].By})
	}
	for _, id := range a.Gone {
		out.Body.Gone = append(out.Body.Gone, wire.Gone{Record: id.Encode(), Owner: wire.OwnerOf(&id), Operation: id.Operation, Key: id.Key})
	}
	return out, nil
}
