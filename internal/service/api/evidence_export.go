package api

import (
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
)

// exportType is the media type of an export: a JSON value in each line.
const exportType = "application/x-ndjson"

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
	log, reader, err := x.readEvidence(false)
	if err != nil {
		return nil, err
	}
	tenant, err := x.tenantOf(in.Tenant, "evidence")
	if err != nil {
		return nil, err
	}
	opts := &evidence.ExportOptions{NoOpenings: in.NoOpenings}
	if x.tenant() != nil || x.r.URL.Query().Has("tenant") {
		opts.Tenant = log.Tenant(tenant)
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
		paced := &pacedWriter{x.w, x.api.opts.bounds.streamTime}
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
			return nil, x.api.newProblem(semel.CodeNotFound, "the newest checkpoint doesn't have all of these entries")
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

func verifyEvidence(x *exchange, _ *struct{}) (*reply[evidence.Report], error) {
	log, reader, err := x.readEvidence(false)
	if err != nil {
		return nil, err
	}
	opts := &evidence.ExportOptions{}
	if bound := x.tenant(); bound != nil {
		opts.Tenant = log.Tenant(*bound)
	}
	report, err := evidence.VerifyExport(func(w io.Writer) error { return reader.Export(x.ctx(), w, opts) }, log.Trust(), nil)
	if err != nil {
		err = x.unreadable(err)
	}
	return replied(&report, err)
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
