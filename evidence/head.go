package evidence

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/form"
	"github.com/semelhq/semel/store"
)

// headID is the cell that holds the head of the log.
var headID = store.ID{Operation: "semel.cell", Key: "evidence"}

// head is the content of the log's cell: everything that its nodes must agree on.
type head struct {
	// Checkpoint is the newest signed checkpoint.
	Checkpoint string `json:"checkpoint"`
	// Keep says that it has to be kept under the number Kept before another one replaces it.
	Keep bool   `json:"keep,omitempty"`
	Kept uint64 `json:"kept,omitempty"`
	// KeptAt is when the newest checkpoint that is, or will be, kept was signed.
	KeptAt store.Instant `json:"kept_at,omitzero"`
	// Cosigned is the newest checkpoint with witnesses' signatures.
	Cosigned string `json:"cosigned,omitempty"`
	// Node is the node that integrates the log at present.
	Node string `json:"node,omitempty"`
	// Key is the key that signed, as its name and hash.
	Key string `json:"key,omitempty"`
	// Erased is a number: the openings of all entries before it are erased.
	Erased uint64 `json:"erased,omitempty"`

	at    Checkpoint // what Checkpoint says
	value store.CellValue
}

// begin writes the head of a new log, before there can be entries. If there are entries but no
// head, somebody removed it, and a signature would make the rest look like a complete history: then
// this node signs nothing. It also doesn't if the log lacks the checkpoint that was signed last. A
// crash before the write leaves a store without a log, and one after it a log without entries.
func (l *Log) begin(ctx context.Context) error {
	h, err := l.load(ctx)
	if err != nil {
		return err
	}
	if _, err := l.signers(h); err == nil { // otherwise the first step reports it
		if err := l.recognize(ctx, h); errors.Is(err, ErrTampered) {
			l.report(ctx, err)
			return nil
		} else if err != nil {
			return err
		}
	}
	if h.value.Data != nil {
		return nil
	}
	entries, err := l.store.ReadEvidence(ctx, 0, 1)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		_, err := l.swap(ctx, h, &head{}) // false: another node was faster
		return err
	}
	// Another node may have begun and written since.
	if h, err = l.load(ctx); err != nil || h.value.Data != nil {
		return err
	}
	l.report(ctx, l.halt(fmt.Errorf("%w: there are entries, and the head that says what was signed is gone", ErrTampered)))
	return nil
}

// Trust returns the public keys of the log, for anybody who verifies it.
func (l *Log) Trust() *Trust { return l.trust }

// Fault returns why this node signs nothing, or a keeper's objection to the log; nil if all is
// well.
func (l *Log) Fault() error {
	for _, found := range []*error{l.halted.Load(), l.forked.Load()} {
		if found != nil {
			return *found
		}
	}
	return nil
}

// load reads the head. An empty log's has no checkpoint.
func (l *Log) load(ctx context.Context) (*head, error) {
	return loadHead(ctx, l.cell)
}

func loadHead(ctx context.Context, cell *store.Cell) (*head, error) {
	v, err := cell.Load(ctx)
	if err != nil {
		return nil, err
	}
	h := &head{value: v}
	if v.Data == nil {
		return h, nil
	}
	err = form.Read(v.Data, 1, h)
	if err == nil && h.Checkpoint != "" { // otherwise nothing is signed yet
		h.at, err = unsigned(h.Checkpoint)
	}
	if err != nil {
		return nil, fmt.Errorf("evidence: the head of the log can't be read: %w", err)
	}
	return h, nil
}

// swap replaces h with next. False means that another node was faster.
func (l *Log) swap(ctx context.Context, h, next *head) (bool, error) {
	data, err := json.Marshal(next)
	if err != nil {
		return false, err
	}
	v, ok, err := l.cell.Swap(ctx, h.value, store.CellValue{Data: data})
	next.value = v
	return ok, err
}

func keyName(s note.Signer) string { return fmt.Sprintf("%s+%08x", s.Name(), s.KeyHash()) }

// keptName returns the store's name for a kept checkpoint, by its number.
func keptName(n uint64) string { return fmt.Sprintf("checkpoint/%d", n) }

// A Reader reads a log that others write.
type Reader struct {
	store logStore
	head  *head
}

// ErrEmpty means that the log has no checkpoint yet.
var ErrEmpty = errors.New("evidence: the log has no checkpoint yet")

// NewReader reads the log up to its newest checkpoint.
func NewReader(ctx context.Context, st semel.Store) (*Reader, error) {
	kept, err := logOf(st)
	if err != nil {
		return nil, err
	}
	h, err := loadHead(ctx, store.NewCell(st, headID))
	if err != nil {
		return nil, err
	}
	if h.Checkpoint == "" {
		return nil, ErrEmpty
	}
	return &Reader{store: kept, head: h}, nil
}

// Reader reads the log up to its newest checkpoint.
func (l *Log) Reader(ctx context.Context) (*Reader, error) { return NewReader(ctx, l.store) }

// Checkpoint returns the newest checkpoint, with and without its signatures.
func (r *Reader) Checkpoint() (signed string, c Checkpoint) { return r.head.Checkpoint, r.head.at }

// Contains reports why the log, up to its newest checkpoint, isn't a continuation of the one in
// another signed checkpoint: [ErrFork] if it was cut off, put back or rewritten. It doesn't
// look at signatures; see [Trust.Open].
func (r *Reader) Contains(ctx context.Context, signed string) error {
	return contains(r.head.at, signed, func(old uint64) (tlog.TreeProof, error) { return r.ProveTree(ctx, old) })
}

// Cosigned returns the newest checkpoint with witnesses' signatures, or "".
func (r *Reader) Cosigned() string { return r.head.Cosigned }

// kept returns a kept checkpoint by its number.
func (r *Reader) kept(ctx context.Context, n uint64) (string, error) {
	signed, err := r.store.EvidenceTile(ctx, keptName(n))
	if err != nil {
		return "", fmt.Errorf("evidence: kept checkpoint %d: %w", n, err)
	}
	return string(signed), nil
}

// entries yields entries from one number to before another.
func (r *Reader) entries(ctx context.Context, from, to uint64, each func(n uint64, en *store.Entry) error) error {
	for from < to {
		batch, err := r.store.ReadEvidence(ctx, from, int(min(to-from, readBatch)))
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			return fmt.Errorf("evidence: the store has no entry %d, which the checkpoint of size %d has", from, r.head.at.Size)
		}
		for i := range batch {
			if err := each(from, &batch[i]); err != nil {
				return err
			}
			from++
		}
	}
	return nil
}

// Entry returns one entry by its number.
func (r *Reader) Entry(ctx context.Context, n uint64) (en store.Entry, err error) {
	err = r.entries(ctx, n, n+1, func(_ uint64, found *store.Entry) error { en = *found; return nil })
	return en, err
}

// Find returns the numbers of a subject's entries, ascending.
func (r *Reader) Find(ctx context.Context, s store.Subject) (all []uint64, err error) {
	for from := uint64(0); ; {
		found, err := r.FindSome(ctx, s, from, readBatch)
		if err != nil || len(found) == 0 {
			return all, err
		}
		all = append(all, found...)
		from = found[len(found)-1] + 1
	}
}

// FindSome returns the numbers of up to limit entries of a subject, from number from on, ascending.
func (r *Reader) FindSome(ctx context.Context, s store.Subject, from uint64, limit int) ([]uint64, error) {
	return r.store.FindEvidence(ctx, s, from, limit)
}

// FindCalls returns the numbers, ascending, of all entries about the calls with a name: a
// duplicate's id leads to the duplicate's entry, and that to the call. If very many entries
// have the name, it looks only at the first ones.
func (r *Reader) FindCalls(ctx context.Context, name store.Subject) (all []uint64, err error) {
	named, err := r.Find(ctx, name)
	if err != nil {
		return nil, err
	}
	calls := map[store.Subject]bool{}
	for _, n := range named[:min(len(named), maxNamed)] {
		en, err := r.Entry(ctx, n)
		if err != nil {
			return nil, err
		}
		leaf, err := ParseArtifact(en.Leaf)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", n, err)
		}
		call, ok := leaf.call()
		if all = append(all, n); !ok || calls[call] {
			continue
		}
		calls[call] = true
		more, err := r.Find(ctx, call)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// maxNamed bounds how many entries FindCalls looks at for a name.
const maxNamed = 1000

// call returns the index key of the entries about the artifact's record.
func (a *Artifact) call() (s store.Subject, ok bool) {
	text, ok := strings.CutPrefix(a.Payload.Record, recordPrefix)
	n, err := hex.Decode(s[:], []byte(text[:min(len(text), 2*len(s))]))
	return s, ok && err == nil && n == len(s)
}

// readBatch is how many entries are read at a time.
const readBatch = 4096

// hashes reads the hashes of the tree, and verifies them against the root of the checkpoint.
func (r *Reader) hashes(ctx context.Context) tlog.HashReader {
	at := &r.head.at
	return tlog.TileHashReader(tlog.Tree{N: int64(at.Size), Hash: at.Root}, &tileReader{ctx: ctx, store: r.store, size: at.Size, cached: map[tlog.Tile][]byte{}})
}

// Prove proves that entries are in the log, one proof for each. It reads no part of the tree
// twice.
func (r *Reader) Prove(ctx context.Context, numbers []uint64) ([]tlog.RecordProof, error) {
	hashes, proofs := r.hashes(ctx), make([]tlog.RecordProof, len(numbers))
	for i, n := range numbers {
		if n >= r.head.at.Size {
			return nil, fmt.Errorf("evidence: the checkpoint has %d entries", r.head.at.Size)
		}
		var err error
		if proofs[i], err = tlog.ProveRecord(int64(r.head.at.Size), int64(n), hashes); err != nil {
			return nil, err
		}
	}
	return proofs, nil
}

// ProveTree proves that the log contains its own state at a smaller size.
func (r *Reader) ProveTree(ctx context.Context, old uint64) (tlog.TreeProof, error) {
	switch {
	case old > r.head.at.Size:
		return nil, fmt.Errorf("evidence: the checkpoint has %d entries", r.head.at.Size)
	case old == 0 || old == r.head.at.Size:
		return nil, nil
	}
	return tlog.ProveTree(int64(r.head.at.Size), int64(old), r.hashes(ctx))
}
