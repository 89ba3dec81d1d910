package evidence

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/semelhq/semel/store"
)

// ExportOptions says what [Reader.Export] writes. Nil: everything.
type ExportOptions struct {
	// Tenant is the blinded name of the tenant whose entries are written, each with
	// a proof that it is in the log; see [Log.Tenant]. Empty: all entries.
	Tenant string
	// Only are the numbers of the entries that are written, rising, each with a
	// proof. Empty: all.
	Only []uint64
	// NoOpenings leaves the openings out.
	NoOpenings bool
}

// Export writes the log up to its newest checkpoint, or what one tenant may see of
// it, as lines of JSON:
//
//	{"semel_evidence":1,"origin":"…","size":3,"view":"log"}
//	{"n":0,"hash":"…","leaf":{…},"opening":{…}}
//	{"checkpoint":"…"}
//	{"end":3}
//
// The bytes of leaf and opening are those that were stored; ones that are no plain
// JSON object are in a member raw or raw_opening, in base64. An opening that was
// erased is null. A checkpoint follows the last of its entries. In the view of a
// tenant, or of some entries, the checkpoint comes first, and each entry has a proof:
// the hashes that lead from it to the root, in base64.
func (r *Reader) Export(ctx context.Context, w io.Writer, opts *ExportOptions) error {
	if opts == nil {
		opts = &ExportOptions{}
	}
	e := &exporter{Reader: r, opts: opts, out: bufio.NewWriterSize(w, 1<<18)}
	if err := e.write(ctx); err != nil {
		return err
	}
	return e.out.Flush()
}

type exporter struct {
	*Reader
	opts *ExportOptions
	out  *bufio.Writer
	line []byte
}

// headerLine is the first line.
type headerLine struct {
	Version int    `json:"semel_evidence"`
	Origin  string `json:"origin"`
	Size    uint64 `json:"size"`
	View    string `json:"view"`
	Tenant  string `json:"tenant_id,omitempty"`
}

type checkpointLine struct {
	Checkpoint string `json:"checkpoint"`
}

// The views.
const (
	viewLog     = "log"
	viewTenant  = "tenant"
	viewEntries = "entries"
)

func (e *exporter) write(ctx context.Context) error {
	size := e.head.at.Size
	header := headerLine{1, e.head.at.Origin, size, viewLog, ""}
	switch {
	case e.opts.Tenant != "":
		header.View, header.Tenant = viewTenant, e.opts.Tenant
	case e.opts.Only != nil:
		header.View = viewEntries
	}
	if err := e.json(header); err != nil {
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
	e.line = append(strconv.AppendUint(append(e.line[:0], `{"end":`...), size, 10), "}\n"...)
	_, err = e.out.Write(e.line)
	return err
}

// log writes all entries, and each checkpoint after its last one.
func (e *exporter) log(ctx context.Context) error {
	next, at, err := e.nextKept(ctx, 0)
	if err != nil {
		return err
	}
	mark := func(size uint64) error {
		for next < e.head.Kept && at.size == size {
			if err := e.json(checkpointLine{at.signed}); err != nil {
				return err
			}
			next++
			if _, at, err = e.nextKept(ctx, next); err != nil {
				return err
			}
		}
		return nil
	}
	if err := mark(0); err != nil {
		return err
	}
	err = e.entries(ctx, 0, e.head.at.Size, func(n uint64, en *store.Entry) error {
		e.entry(n, en)
		e.line = append(e.line, "}\n"...)
		if _, err := e.out.Write(e.line); err != nil {
			return err
		}
		return mark(n + 1)
	})
	if err != nil {
		return err
	}
	return e.json(checkpointLine{e.head.Checkpoint})
}

type keptAt struct {
	signed string
	size   uint64
}

// nextKept reads a kept checkpoint.
func (e *exporter) nextKept(ctx context.Context, n uint64) (uint64, keptAt, error) {
	if n >= e.head.Kept {
		return n, keptAt{}, nil
	}
	signed, err := e.kept(ctx, n)
	if err != nil {
		return n, keptAt{}, err
	}
	c, err := unsigned(signed)
	return n, keptAt{signed, c.Size}, err
}

// some writes some entries, with proofs. What is proved comes from the checkpoint, so
// a store that was changed is found out here.
func (e *exporter) some(ctx context.Context) error {
	if err := e.json(checkpointLine{e.head.Checkpoint}); err != nil {
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
		e.entry(n, en)
		e.line = append(e.line, `,"proof":[`...)
		for i := range proof {
			if i > 0 {
				e.line = append(e.line, ',')
			}
			e.line = append(base64.StdEncoding.AppendEncode(append(e.line, '"'), proof[i][:]), '"')
		}
		e.line = append(e.line, "]}\n"...)
		_, err = e.out.Write(e.line)
		return err
	}
	if e.opts.Only == nil {
		return e.entries(ctx, 0, e.head.at.Size, proved)
	}
	for _, n := range e.opts.Only {
		if n >= e.head.at.Size {
			return fmt.Errorf("evidence: the checkpoint has %d entries", e.head.at.Size)
		}
		if err := e.entries(ctx, n, n+1, proved); err != nil {
			return err
		}
	}
	return nil
}

// entry makes the line of an entry but for its end.
func (e *exporter) entry(n uint64, en *store.Entry) {
	b := strconv.AppendUint(append(e.line[:0], `{"n":`...), n, 10)
	hash := leafHash(en.Leaf)
	b = append(hex.AppendEncode(append(b, `,"hash":"`...), hash[:]), '"')
	b = appendRaw(b, "leaf", "raw", en.Leaf)
	switch {
	case e.opts.NoOpenings || en.Opening == nil:
		b = append(b, `,"opening":null`...)
	default:
		b = appendRaw(b, "opening", "raw_opening", en.Opening)
	}
	e.line = b
}

// appendRaw appends a JSON object as it is, and anything else in base64.
func appendRaw(b []byte, name, raw string, data []byte) []byte {
	if end := objectEnd(data); end == len(data) && end > 0 && json.Valid(data) {
		return append(append(append(append(b, `,"`...), name...), `":`...), data...)
	}
	b = append(append(append(b, `,"`...), raw...), `":"`...)
	return append(base64.StdEncoding.AppendEncode(b, data), '"')
}

func (e *exporter) json(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = e.out.Write(append(b, '\n'))
	return err
}

// objectEnd is where the JSON object that data begins with ends, or 0 if it is none
// on one line. It looks at braces and strings only.
func objectEnd(data []byte) int {
	if len(data) == 0 || data[0] != '{' {
		return 0
	}
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
				if i < len(data) && data[i] == '\n' {
					return 0
				}
			}
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i + 1
			}
		case '\n':
			return 0
		}
	}
	return 0
}
