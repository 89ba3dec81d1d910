package evidence

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// ExportOptions says what [Reader.Export] writes. Nil: everything.
type ExportOptions struct {
	// Tenant is the blinded name of a tenant, to write only its entries, each with a proof that
	// it is in the log; see [Log.Tenant]. Empty: all entries.
	Tenant string
	// Only has the numbers of the entries to write, ascending, each with a proof. Empty: all.
	Only []uint64
	// NoOpenings leaves the openings out.
	NoOpenings bool
}

// Export writes the log up to its newest checkpoint, or one tenant's view of it, as lines of
// JSON:
//
//	{"semel_evidence":1,"origin":"…","size":3,"view":"log"}
//	{"n":0,"hash":"…","leaf":{…},"opening":{…}}
//	{"checkpoint":"…"}
//	{"end":3}
//
// Leaf and opening have their stored bytes; if one isn't a plain JSON object without white
// space between its members, it is in a member raw or raw_opening, in base64. An erased opening
// is null. A checkpoint follows the last of its entries. In the view of a tenant, or of some
// entries, the checkpoint comes first, and each entry has a proof: the hashes from it to the
// root, in base64.
func (r *Reader) Export(ctx context.Context, w io.Writer, opts *ExportOptions) error {
	if opts == nil {
		opts = &ExportOptions{}
	}
	out := bufio.NewWriterSize(w, 1<<18)
	e := &exporter{Reader: r, opts: opts, lines: lineEncoder(out)}
	if err := e.write(ctx); err != nil {
		return err
	}
	return out.Flush()
}

// lineEncoder writes lines, and leaves leaves and openings unchanged.
func lineEncoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

type exporter struct {
	*Reader
	opts  *ExportOptions
	lines *json.Encoder
}

func (e *exporter) write(ctx context.Context) error {
	size := e.head.at.Size
	header := headerLine{1, e.head.at.Origin, size, viewLog, ""}
	switch {
	case e.opts.Tenant != "":
		header.View, header.Tenant = viewTenant, e.opts.Tenant
	case e.opts.Only != nil:
		header.View = viewEntries
	}
	if err := e.lines.Encode(header); err != nil {
		return err
	}
	var err error
	if header.View == viewLog {
		err = e.log(ctx)
	} else {
		err = e.some(ctx)
	}
	if err != nil {
		return err
	}
	return e.lines.Encode(endLine{&size})
}

// log writes all entries, and each checkpoint after its last entry.
func (e *exporter) log(ctx context.Context) error {
	next := uint64(0) // the entry
	upTo := func(signed string) error {
		c, err := unsigned(signed)
		if err != nil {
			return err
		}
		err = e.entries(ctx, next, c.Size, func(n uint64, en *store.Entry) error {
			return e.lines.Encode(lineOf(n, en, !e.opts.NoOpenings, nil))
		})
		if err != nil {
			return err
		}
		next = c.Size
		return e.lines.Encode(checkpointLine{signed})
	}
	for n := range e.head.Kept {
		signed, err := e.kept(ctx, n)
		if err == nil {
			err = upTo(signed)
		}
		if err != nil {
			return err
		}
	}
	return upTo(e.head.Checkpoint)
}

// some writes some entries, with proofs. The proofs lead to the checkpoint, so this fails if
// somebody changed the store.
func (e *exporter) some(ctx context.Context) error {
	if err := e.lines.Encode(checkpointLine{e.head.Checkpoint}); err != nil {
		return err
	}
	mine := []byte(`"tenant_id":"` + e.opts.Tenant + `"`)
	hashes := e.hashes(ctx)
	proved := func(n uint64, en *store.Entry) error {
		if e.opts.Tenant != "" && !bytes.Contains(en.Leaf, mine) {
			return nil
		}
		proof, err := tlog.ProveRecord(int64(e.head.at.Size), int64(n), hashes)
		if err != nil {
			return err
		}
		return e.lines.Encode(lineOf(n, en, !e.opts.NoOpenings, append(tlog.RecordProof{}, proof...))) // not nil
	}
	if e.opts.Only == nil {
		return e.entries(ctx, 0, e.head.at.Size, proved)
	}
	for _, n := range e.opts.Only {
		if n >= e.head.at.Size {
			return &semel.Error{Code: semel.CodeNotFound, Message: fmt.Sprintf("entry %d: the newest checkpoint has %d entries", n, e.head.at.Size)}
		}
		if err := e.entries(ctx, n, n+1, proved); err != nil {
			return err
		}
	}
	return nil
}
