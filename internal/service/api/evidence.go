package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

// exportType is the media type of an export: a JSON value in each line.
const exportType = "application/x-ndjson"

func (b *builder) evidence() {
	codes := []semel.Code{semel.CodeUnsupported, semel.CodeNotFound}
	route(b, huma.Operation{
		OperationID: "listEvidence", Method: http.MethodGet, Path: "/v1/evidence/entries", Tags: []string{"evidence"},
		Summary: "Read what the evidence log says about a call",
		Description: "The call is named by its record, or by an id of one of its deliveries, which may be a duplicate or one that was rejected. Several calls may have the same name. " +
			"An entry may be newer than the newest checkpoint. Nothing proves what is answered here: that is what an export is for.",
	}, Viewer, codes, listEvidence)
	route(b, huma.Operation{
		OperationID: "exportEvidence", Method: http.MethodGet, Path: "/v1/evidence/export", Tags: []string{"evidence"},
		Summary: "Download the evidence log, to verify it elsewhere",
		Description: "Lines of JSON up to the newest checkpoint, as 'semel evidence verify' reads them; an answer that broke off lacks the last one, which has end. " +
			"A caller who may see only one tenant gets its entries only, each with a proof. A reader that is too slow is cut off.",
		Responses: map[string]*huma.Response{"200": {
			Description: "The export.",
			Content:     map[string]*huma.MediaType{exportType: {Schema: &huma.Schema{Type: huma.TypeString}}},
		}},
	}, Viewer, codes, exportEvidence)
}

type evidenceInput struct {
	Record string `query:"record" maxLength:"8192" doc:"The id of the record; instead of name."`
	Name   string `query:"name" maxLength:"1024" doc:"The key, or the command, request, correlation or event id of a delivery."`
	Tenant string `query:"tenant" maxLength:"256" doc:"The tenant in which the name counts. Defaults to the caller's, which for who sees all tenants is the empty one."`
	From   int64  `query:"from" minimum:"0" doc:"The first number that is listed."`
}

type evidenceOutput struct{ Body wire.Evidence }

func listEvidence(x *exchange, in *evidenceInput) (*evidenceOutput, error) {
	log := x.api.opts.Evidence
	if log == nil {
		return nil, x.noEvidence()
	}
	subject, err := x.subject(log, in)
	if err != nil {
		return nil, err
	}
	reader, err := log.Reader(x.ctx())
	if err != nil {
		return nil, x.unreadable(err)
	}
	var numbers []uint64
	if from := uint64(in.From); in.Name == "" {
		numbers, err = reader.FindSome(x.ctx(), subject, from, wire.MaxEvidence+1)
	} else if numbers, err = reader.FindCalls(x.ctx(), subject); err == nil {
		first, _ := slices.BinarySearch(numbers, from)
		numbers = numbers[first:]
	}
	if err != nil {
		return nil, x.unreadable(err)
	}
	out, budget := &evidenceOutput{wire.Evidence{Entries: []wire.EvidenceEntry{}}}, paging.New(x.ctx())
	for _, n := range numbers {
		if len(out.Body.Entries) == wire.MaxEvidence || budget.Spent {
			out.Body.Next = n
			break
		}
		kept, err := reader.Entry(x.ctx(), n)
		if err != nil {
			return nil, x.unreadable(err)
		}
		if !json.Valid(kept.Leaf) || kept.Opening != nil && !json.Valid(kept.Opening) {
			return nil, x.unreadable(evidence.ErrTampered)
		}
		budget.Spend(len(kept.Leaf) + len(kept.Opening))
		out.Body.Entries = append(out.Body.Entries, wire.EvidenceEntry{N: n, Leaf: kept.Leaf, Opening: kept.Opening})
	}
	return out, nil
}

// subject is what the caller asks about, if they may.
func (x *exchange) subject(log *evidence.Log, in *evidenceInput) (store.Subject, error) {
	switch {
	case (in.Record == "") == (in.Name == ""):
		return store.Subject{}, x.api.invalid("query.record", "give either record or name")
	case in.Record != "" && in.Tenant != "":
		return store.Subject{}, x.api.invalid("query.tenant", "a record has its tenant in its id")
	case in.Record == "":
		tenant, err := x.tenantOf(in.Tenant)
		return log.Name(tenant, in.Name), err
	}
	id, err := store.DecodeID(in.Record)
	if err != nil || !x.oversees(id.Tenant) {
		return store.Subject{}, x.noRecord()
	}
	return log.Subject(id), nil
}

// tenantOf is the tenant that the caller asks about, if they may: their own by default.
func (x *exchange) tenantOf(asked string) (string, error) {
	bound := x.tenant()
	switch {
	case bound == nil:
		return asked, nil
	case asked != "" && asked != *bound:
		return "", x.api.newProblem(semel.CodeForbidden, "the caller may see only their own tenant's evidence")
	}
	return *bound, nil
}

type exportInput struct {
	Tenant     string  `query:"tenant" maxLength:"256" doc:"Only the entries of this tenant, each with a proof."`
	Entries    []int64 `query:"entries" maxItems:"1000" doc:"Only the entries with these numbers, each with a proof."`
	NoOpenings bool    `query:"no_openings" doc:"Leave out what entries are about in clear."`
}

type exportOutput struct {
	Type string `header:"Content-Type"`
	Body func(huma.Context)
}

func exportEvidence(x *exchange, in *exportInput) (*exportOutput, error) {
	log := x.api.opts.Evidence
	if log == nil {
		return nil, x.noEvidence()
	}
	tenant, err := x.tenantOf(in.Tenant)
	if err != nil {
		return nil, err
	}
	opts := &evidence.ExportOptions{NoOpenings: in.NoOpenings}
	if x.tenant() != nil || x.r.URL.Query().Has("tenant") {
		opts.Tenant = log.Tenant(tenant)
	}
	reader, err := log.Reader(x.ctx())
	if err != nil {
		return nil, x.unreadable(err)
	}
	if in.Entries != nil {
		if opts.Only, err = x.proved(reader, in.Entries, opts.Tenant); err != nil {
			return nil, err
		}
		opts.Tenant = "" // it is a view of entries, whose tenants were looked at
	}
	return &exportOutput{exportType, func(huma.Context) {
		// A part of an export has no end, and the connection breaks, so that nobody takes it
		// for the whole: the status was sent long before.
		paced := &pacedWriter{x.w, x.api.opts.StreamTimeout}
		if err := reader.Export(x.ctx(), paced, opts); err != nil {
			panic(http.ErrAbortHandler)
		}
		paced.end()
	}}, nil
}

// proved are the numbers of entries that the caller may see, rising; an empty tenant means all.
func (x *exchange) proved(reader *evidence.Reader, asked []int64, tenant string) ([]uint64, error) {
	_, at := reader.Checkpoint()
	slices.Sort(asked)
	var numbers []uint64
	for _, n := range slices.Compact(asked) {
		if n < 0 || uint64(n) >= at.Size {
			return nil, x.api.invalid("query.entries", "the newest checkpoint doesn't have all of these entries")
		}
		numbers = append(numbers, uint64(n))
		if tenant == "" {
			continue
		}
		kept, err := reader.Entry(x.ctx(), uint64(n))
		if err != nil {
			return nil, x.unreadable(err)
		}
		if leaf, err := evidence.ParseArtifact(kept.Leaf); err != nil || leaf.Tenant != tenant {
			return nil, x.api.newProblem(semel.CodeForbidden, "the caller may see only their own tenant's evidence")
		}
	}
	return numbers, nil
}

func (x *exchange) noEvidence() error {
	return x.api.newProblem(semel.CodeUnsupported, "this service keeps no evidence: its store can't, or evidence.key_file is not set")
}

// unreadable says why the log can't be read: who asks has a role.
func (x *exchange) unreadable(err error) error {
	switch {
	case errors.Is(err, evidence.ErrEmpty):
		return x.api.newProblem(semel.CodeNotFound, "the evidence log has no checkpoint yet")
	case errors.Is(err, evidence.ErrTampered), errors.Is(err, evidence.ErrFork):
		return x.api.newProblem(door.CodeInternal, "the evidence log is not what was signed: export and verify it")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return x.api.newProblem(semel.CodeStoreUnavailable, "the evidence log can't be read at the moment").after(retryUnavailable)
}

// pacedWriter gives each piece of an answer its own time, so that a long answer may take long,
// and a reader who stopped reading doesn't hold it for ever.
type pacedWriter struct {
	w       http.ResponseWriter
	timeout time.Duration
}

// pieceSize is how much must get through in that time, in bytes.
const pieceSize = 32 << 10

// Write implements [io.Writer].
func (p *pacedWriter) Write(text []byte) (n int, err error) {
	c := http.NewResponseController(p.w)
	for piece := range slices.Chunk(text, pieceSize) {
		_ = c.SetWriteDeadline(time.Now().Add(p.timeout)) // a writer without deadlines has no connection
		written, err := p.w.Write(piece)
		if n += written; err != nil {
			return n, err
		}
	}
	return n, nil
}

// end gives the connection back without a deadline, for the next request on it.
func (p *pacedWriter) end() { _ = http.NewResponseController(p.w).SetWriteDeadline(time.Time{}) }

var _ io.Writer = (*pacedWriter)(nil)
