package dashboard

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/store"
)

// checkpoint is the newest signed state of the log.
type checkpoint struct {
	Origin string   `json:"origin"`
	Size   uint64   `json:"size"`
	Root   string   `json:"root"`
	Signed string   `json:"signed"`
	Fault  string   `json:"fault,omitempty"`
	Keys   []string `json:"keys"`
}

// serveCheckpoint shows the checkpoint, which says nothing about anybody.
func (d *Dashboard) serveCheckpoint(w http.ResponseWriter, r *http.Request, _ *api.Caller) {
	c := checkpoint{Origin: d.opts.Evidence.Trust().Origin(), Keys: d.opts.Evidence.Trust().Keys()}
	if err := d.opts.Evidence.Fault(); err != nil {
		c.Fault = err.Error()
	}
	reader, err := d.opts.Evidence.Reader(r.Context())
	switch {
	case errors.Is(err, evidence.ErrEmpty):
	case err != nil:
		unreadable(w, err)
		return
	default:
		signed, at := reader.Checkpoint()
		c.Signed, c.Size, c.Root = signed, at.Size, at.Root.String()
	}
	reply(w, c)
}

// entry is an entry of the log.
type entry struct {
	N       uint64            `json:"n"`
	Leaf    evidence.Artifact `json:"leaf"`
	Opening *evidence.Opening `json:"opening"` // null where it was erased
	// Proof is the path from the leaf to the root of the checkpoint, in base64, by
	// which the page verifies the entry by itself. Raw is the leaf as it was hashed.
	Proof []string `json:"proof,omitempty"`
	Raw   []byte   `json:"raw,omitempty"`
}

// entryList is a page of them, the newest first, with the checkpoint that the proofs lead to.
type entryList struct {
	Entries []entry `json:"entries"`
	Size    uint64  `json:"size"`
	Root    string  `json:"root_base64,omitempty"`
	Next    uint64  `json:"next,omitempty"` // entries before this one follow
}

// pageOfEntries is how many entries a page has.
const pageOfEntries = 50

// serveEntries shows the entries about a record or, to who sees all tenants, all of them: a
// page of those before a number, from the newest on.
func (d *Dashboard) serveEntries(w http.ResponseWriter, r *http.Request, caller *api.Caller) {
	q := r.URL.Query()
	var about semel.ID
	if text := q.Get("record"); text != "" {
		id, err := store.DecodeID(text)
		if err != nil || !sees(caller, id.Tenant) {
			refuse(w, semel.CodeNotFound, "There is no such record.")
			return
		}
		about = id
	} else if !overseesAll(caller) {
		refuse(w, semel.CodeForbidden, "Only an admin of all tenants sees the whole log. Open a record for what the log says about it.")
		return
	}
	list := entryList{Entries: []entry{}}
	reader, err := d.opts.Evidence.Reader(r.Context())
	if errors.Is(err, evidence.ErrEmpty) {
		reply(w, list)
		return
	}
	if err != nil {
		unreadable(w, err)
		return
	}
	before, err := strconv.ParseUint(q.Get("before"), 10, 64)
	if err != nil {
		before = math.MaxUint64
	}
	if err := list.fill(r.Context(), reader, d.opts.Evidence.Subject(about), about == semel.ID{}, before); err != nil {
		unreadable(w, err)
		return
	}
	reply(w, list)
}

// fill reads the page of entries before a number: of all, or of those of a subject.
func (list *entryList) fill(ctx context.Context, reader *evidence.Reader, subject store.Subject, all bool, before uint64) (err error) {
	_, at := reader.Checkpoint()
	list.Size, list.Root = at.Size, at.Root.String()
	var numbers []uint64 // rising
	if all {
		for n := max(min(before, at.Size), pageOfEntries+1) - pageOfEntries - 1; n < min(before, at.Size); n++ {
			numbers = append(numbers, n)
		}
	} else {
		if numbers, err = reader.Find(ctx, subject); err != nil {
			return err
		}
		end, _ := slices.BinarySearch(numbers, before)
		numbers = numbers[:end]
	}
	if more := len(numbers) - pageOfEntries; more > 0 {
		numbers = numbers[more:]
		list.Next = numbers[0]
	}
	integrated, _ := slices.BinarySearch(numbers, at.Size)
	proofs, err := reader.ProveAll(ctx, numbers[:integrated])
	if err != nil {
		return err
	}
	budget := paging.New(ctx)
	for i, n := range slices.Backward(numbers) {
		if budget.Spent {
			list.Next = n + 1
			break
		}
		e, err := readEntry(ctx, reader, n)
		if err != nil {
			return err
		}
		budget.Spend(2 * len(e.Raw)) // which the answer has as its members, too
		if i < integrated {
			for _, hash := range proofs[i] {
				e.Proof = append(e.Proof, hash.String())
			}
		}
		list.Entries = append(list.Entries, e)
	}
	return nil
}

func overseesAll(c *api.Caller) bool { return c.Role == api.Admin && c.AllTenants }

func sees(c *api.Caller, tenant string) bool { return overseesAll(c) || c.Tenant == tenant }

// readEntry reads an entry, without its proof.
func readEntry(ctx context.Context, reader *evidence.Reader, n uint64) (e entry, err error) {
	kept, err := reader.Entry(ctx, n)
	if err != nil {
		return e, err
	}
	e = entry{N: n, Raw: kept.Leaf}
	if e.Leaf, err = evidence.ParseArtifact(kept.Leaf); err != nil || kept.Opening == nil {
		return e, err
	}
	opening, err := evidence.ParseOpening(e.Leaf, kept.Opening)
	e.Opening = &opening
	return e, err
}

// serveVerification exports what the caller may see of the log and verifies the export with
// nothing but the public keys, as 'semel evidence verify' does.
func (d *Dashboard) serveVerification(w http.ResponseWriter, r *http.Request, caller *api.Caller) {
	reader, err := d.opts.Evidence.Reader(r.Context())
	if err != nil {
		unreadable(w, err)
		return
	}
	opts := &evidence.ExportOptions{}
	if !overseesAll(caller) {
		opts.Tenant = d.opts.Evidence.Tenant(caller.Tenant)
	}
	from, to := io.Pipe()
	go func() { to.CloseWithError(reader.Export(r.Context(), to, opts)) }() // ends with the pipe
	report, err := evidence.Verify(from, d.opts.Evidence.Trust(), nil)
	from.CloseWithError(errors.New("the verification is over"))
	if err != nil {
		unreadable(w, err)
		return
	}
	reply(w, report)
}

// unreadable answers that the log can't be read, and why: who asks has a role.
func unreadable(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, evidence.ErrEmpty):
		refuse(w, semel.CodeNotFound, "The log has no checkpoint yet.")
	case errors.Is(err, evidence.ErrTampered), errors.Is(err, evidence.ErrFork):
		refuse(w, door.CodeInternal, "The log is not what was signed: "+err.Error()+".")
	default:
		refuse(w, semel.CodeStoreUnavailable, "The log can't be read: "+err.Error()+".")
	}
}
