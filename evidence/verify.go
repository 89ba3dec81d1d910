package evidence

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Kind is the kind of a fault of a log.
type Kind string

// The kinds of faults.
const (
	KindChanged   Kind = "changed"   // an entry differs from the signed one
	KindMissing   Kind = "missing"   // an entry is missing
	KindOrder     Kind = "order"     // an entry isn't in its place, or there is one too many
	KindOpening   Kind = "opening"   // an opening doesn't match its commitment
	KindCut       Kind = "cut"       // the end is missing
	KindFork      Kind = "fork"      // two checkpoints contradict each other
	KindSignature Kind = "signature" // a checkpoint was not signed by a trusted key
	KindFormat    Kind = "format"    // a line doesn't belong in an export
	KindStory     Kind = "story"     // entries are as signed, but contradict each other
)

// Finding is a fault. First is the bad entry, and Last the same. If only checkpoints show the
// fault, the bad entry is between First and Last. If the kind is story, First and Last
// contradict each other; if they are the same entry, entries before it are missing.
type Finding struct {
	Kind    Kind   `json:"kind"`
	First   uint64 `json:"first"`
	Last    uint64 `json:"last"`
	Message string `json:"message"`
}

// String names the entries and the fault.
func (f *Finding) String() string {
	if f.Kind == KindStory && f.First != f.Last {
		return fmt.Sprintf("entries %d and %d: %s: %s", f.First, f.Last, f.Kind, f.Message)
	}
	if f.First == f.Last {
		return fmt.Sprintf("entry %d: %s: %s", f.First, f.Kind, f.Message)
	}
	return fmt.Sprintf("entries %d to %d: %s: %s", f.First, f.Last, f.Kind, f.Message)
}

// Report is the result of a verification.
type Report struct {
	Origin string `json:"origin"`
	// View is "log" for all entries, "tenant" for one tenant's, "entries" for some.
	View string `json:"view"`
	// Entries is how many were verified, and Erased how many of them have no opening.
	Entries uint64 `json:"entries"`
	Erased  uint64 `json:"without_opening"`
	// Checkpoints counts the ones in the export, and Kept the given ones that agree.
	Checkpoints int `json:"checkpoints"`
	Kept        int `json:"kept_checkpoints"`
	// NotCompared counts the given checkpoints that couldn't be compared: a view of some
	// entries only fits a checkpoint of its own size.
	NotCompared int `json:"kept_not_compared,omitempty"`
	// Size and Root belong to the last checkpoint.
	Size uint64 `json:"size"`
	Root string `json:"root"`
	// Finding is the first fault; nil: there is none.
	Finding *Finding `json:"finding,omitempty"`
	// Contradictions are the first faults of the kind story, at most 100 of them: the log's
	// history is impossible unless somebody deleted or changed records behind the engine's
	// back. ContradictionsFound counts all. If nothing else is wrong, Finding is the first.
	Contradictions      []Finding `json:"contradictions,omitempty"`
	ContradictionsFound int       `json:"contradictions_found,omitempty"`
	// Proved are the entries of a view of some entries.
	Proved []OpenEntry `json:"proved,omitempty"`
}

// OpenEntry is an entry with what it is about in clear; nil where that was erased or left out.
type OpenEntry struct {
	N       uint64   `json:"n"`
	Leaf    Artifact `json:"leaf"`
	Opening *Opening `json:"opening"`
}

// Open parses an entry, and holds the opening against the leaf; nil is none.
func Open(n uint64, leaf, opening []byte) (e OpenEntry, err error) {
	e.N = n
	if e.Leaf, err = ParseArtifact(leaf); err != nil || opening == nil {
		return e, err
	}
	o, err := ParseOpening(e.Leaf, opening)
	if err == nil {
		e.Opening = &o
	}
	return e, err
}

// VerifyOptions are optional inputs of a verification.
type VerifyOptions struct {
	// Kept are signed checkpoints from elsewhere. Without them a log that somebody cut off, or
	// rewrote with the key, looks intact.
	Kept []string
}

// Verify checks that an export has the signed entries, and that they don't contradict each other.
// The report has the faults of the log. Verify returns an error if it can't read the export, if
// no trusted key signed a kept checkpoint, or if it can compare none of them with the view. It
// takes some 150 bytes of memory for each record with an open window, and uses all processors.
func Verify(r io.Reader, trust *Trust, opts *VerifyOptions) (Report, error) {
	v := &verifier{trust: trust}
	if opts != nil {
		if err := v.keep(opts.Kept); err != nil {
			return v.report, err
		}
	}
	err := eachLine(r, blockSize, func(l *line) bool {
		if v.found() {
			return false
		}
		v.line(l)
		return !v.found()
	})
	if err != nil {
		return v.report, fmt.Errorf("evidence: read the export: %w", err)
	}
	if !v.found() {
		v.end()
	}
	v.report.Contradictions, v.report.ContradictionsFound = v.story.faults, v.story.found
	if !v.found() && v.story.found > 0 {
		first := v.story.faults[0]
		v.report.Finding = &first
	}
	if r := &v.report; !v.found() && r.NotCompared > 0 && r.Kept == 0 {
		return v.report, fmt.Errorf("evidence: the kept checkpoints were not compared: this view has one of %d entries, and none of them has that size. Give the kept one of %[1]d entries, or an export of the whole log, which can be held against any", r.Size)
	}
	return v.report, nil
}

type verifier struct {
	trust  *Trust
	report Report
	kept   []Checkpoint
	header headerLine
	tree   tree
	story  story
	at     Checkpoint // the newest of the export
	agreed uint64     // size of the export's last checkpoint that agreed
	same   uint64     // size of the last kept checkpoint that agreed
	ended  bool
}

func (v *verifier) found() bool { return v.report.Finding != nil }

func (v *verifier) fault(kind Kind, first, last uint64, format string, args ...any) {
	v.report.Finding = &Finding{kind, first, max(first, last), fmt.Sprintf(format, args...)}
}

func (v *verifier) keep(kept []string) error {
	for _, signed := range kept {
		c, err := v.trust.Open([]byte(signed))
		if err != nil {
			return fmt.Errorf("evidence: a kept checkpoint: %w", err)
		}
		v.kept = append(v.kept, c)
	}
	slices.SortFunc(v.kept, func(a, b Checkpoint) int { return cmp.Compare(a.Size, b.Size) })
	for i := 1; i < len(v.kept); i++ {
		if a, b := v.kept[i-1], v.kept[i]; a.Size == b.Size && a.Root != b.Root {
			v.fault(KindFork, 0, max(a.Size, 1)-1, "two kept checkpoints of %d entries have different roots", a.Size)
			return nil
		}
	}
	return nil
}

func (v *verifier) line(l *line) {
	switch {
	case v.ended:
		v.fault(KindFormat, v.tree.size, 0, "something follows the end")
	case v.header.Version == 0:
		v.first(l)
	case l.isEntry && l.entry.fault != "" && l.entry.kind == KindFormat:
		v.fault(KindFormat, v.tree.size, 0, "%s", l.entry.fault)
	case l.isEntry && v.header.View == viewLog:
		v.logEntry(&l.entry)
	case l.isEntry:
		v.provedEntry(&l.entry)
	default:
		v.other(l.data)
	}
}

func (v *verifier) first(l *line) {
	h := &v.header
	if l.isEntry || strictJSON(l.data, h) != nil || h.Version != 1 || h.View != viewLog && h.View != viewTenant && h.View != viewEntries {
		v.fault(KindFormat, 0, 0, "it does not begin as an export of an evidence log does")
		h.Version = 1
		return
	}
	v.report.Origin, v.report.View = h.Origin, h.View
	if h.Origin != v.trust.Origin() {
		v.fault(KindSignature, 0, 0, "it is of the log %s, and the keys are of %s", h.Origin, v.trust.Origin())
	}
}

// logEntry verifies the next entry of a whole log.
func (v *verifier) logEntry(e *checkedEntry) {
	want := v.tree.size
	switch {
	case e.n > want:
		v.fault(KindMissing, want, want, "it is not there, entry %d follows", e.n)
	case e.n < want:
		v.fault(KindOrder, e.n, e.n, "it comes again, or out of its place, where entry %d should be", want)
	case e.fault != "":
		v.fault(e.kind, e.n, e.n, "%s", e.fault)
	default:
		if v.compareKept(); v.found() {
			return
		}
		v.tree.add(e.hash, nil)
		v.count(e)
	}
}

// provedEntry verifies an entry in the view of a tenant, or of some entries. It doesn't prove
// that these are all.
func (v *verifier) provedEntry(e *checkedEntry) {
	err := e.checkProof(v.at)
	switch {
	case v.report.Checkpoints == 0:
		v.fault(KindFormat, e.n, e.n, "an entry comes before the checkpoint")
	case v.report.Entries > 0 && e.n < v.agreed:
		v.fault(KindOrder, e.n, e.n, "it comes again, or out of its place")
	case e.fault != "":
		v.fault(e.kind, e.n, e.n, "%s", e.fault)
	case err != nil:
		v.fault(KindChanged, e.n, e.n, "%v", err)
	case v.header.View == viewTenant && e.artifact.Tenant != v.header.Tenant:
		v.fault(KindOrder, e.n, e.n, "it is of another tenant")
	default:
		v.agreed = e.n + 1
		v.count(e)
	}
}

func (v *verifier) count(e *checkedEntry) {
	v.report.Entries++
	if v.header.View != viewEntries {
		v.story.add(e.n, &e.told)
	} else { // a few entries are no complete story
		proved, _ := Open(e.n, e.leaf, e.opening)
		v.report.Proved = append(v.report.Proved, proved)
	}
	if e.erased {
		v.report.Erased++
	}
}

// other verifies a line with a checkpoint, or the end.
func (v *verifier) other(data []byte) {
	var end endLine
	if strictJSON(data, &end) == nil && end.End != nil {
		v.ended = true
		if *end.End != v.header.Size {
			v.fault(KindCut, v.tree.size, 0, "it ends at %d entries, and begins as one of %d", *end.End, v.header.Size)
		}
		return
	}
	var c checkpointLine
	if strictJSON(data, &c) != nil || c.Checkpoint == "" {
		v.fault(KindFormat, v.tree.size, 0, "%v", errLine)
		return
	}
	at, err := v.trust.Open([]byte(c.Checkpoint))
	if err != nil {
		v.fault(KindSignature, v.agreed, max(v.tree.size, 1)-1, "%v", err)
		return
	}
	v.report.Checkpoints++
	v.at = at
	if v.header.View != viewLog {
		v.onlyCheckpoint()
		return
	}
	switch {
	case at.Size > v.tree.size:
		v.fault(KindMissing, v.agreed, at.Size-1, "a checkpoint of %d entries follows %d of them", at.Size, v.tree.size)
	case at.Size < v.tree.size:
		v.fault(KindOrder, v.agreed, v.tree.size-1, "a checkpoint of %d entries follows %d of them", at.Size, v.tree.size)
	case at.Root != v.tree.root():
		v.fault(KindChanged, v.agreed, max(at.Size, 1)-1, "they are not what the checkpoint of %d entries was signed for: one was changed, left out, added or moved", at.Size)
	default:
		v.agreed = at.Size
	}
}

// onlyCheckpoint verifies the single checkpoint of a view of some entries. Only a checkpoint of
// the same size can be compared with it.
func (v *verifier) onlyCheckpoint() {
	if v.report.Checkpoints > 1 || v.report.Entries > 0 {
		v.fault(KindFormat, 0, 0, "a view of some entries has one checkpoint, which comes first")
		return
	}
	for _, kept := range v.kept {
		if kept.Size == v.at.Size && kept.Root != v.at.Root {
			v.fault(KindFork, 0, kept.Size-1, "a kept checkpoint of %d entries has another root", kept.Size)
			return
		}
		if kept.Size == v.at.Size {
			v.report.Kept++
		} else {
			v.report.NotCompared++
		}
	}
	v.kept = nil
}

// compareKept compares the log with the kept checkpoints of its size. It runs after the log's
// own checkpoint, so a root that doesn't agree means another history.
func (v *verifier) compareKept() {
	for len(v.kept) > 0 && v.kept[0].Size == v.tree.size && v.header.View == viewLog {
		if v.kept[0].Root != v.tree.root() {
			v.fault(KindFork, v.same, max(v.tree.size, 1)-1, "the kept checkpoint of %d entries has another root", v.tree.size)
			return
		}
		v.same = v.tree.size
		v.kept = v.kept[1:]
		v.report.Kept++
	}
}

// end checks at the end that nothing is missing.
func (v *verifier) end() {
	v.report.Size, v.report.Root = v.at.Size, v.at.Root.String()
	size := v.tree.size
	if v.compareKept(); v.found() {
		return
	}
	switch {
	case v.header.Version == 0:
		v.fault(KindFormat, 0, 0, "it is empty")
	case !v.ended:
		v.fault(KindCut, size, max(v.header.Size, 1)-1, "it breaks off")
	case v.report.Checkpoints == 0:
		v.fault(KindSignature, 0, v.expected(), "it has no checkpoint")
	case v.header.Size != v.at.Size:
		v.fault(KindCut, v.at.Size, max(v.header.Size, 1)-1, "the last checkpoint is of %d entries, not of %d", v.at.Size, v.header.Size)
	case v.header.View == viewLog && size != v.at.Size:
		v.fault(KindCut, v.at.Size, v.expected(), "no checkpoint follows: the end is missing, or what is there was added")
	case len(v.kept) > 0:
		last := v.kept[len(v.kept)-1].Size
		v.fault(KindCut, size, last-1, "a kept checkpoint has %d entries, and this log %d", last, size)
	}
}

// expected returns the last entry that could be there.
func (v *verifier) expected() uint64 {
	if n := len(v.kept); n > 0 {
		return max(v.tree.size, v.kept[n-1].Size-1)
	}
	return v.tree.size
}

// strictJSON decodes an object, and rejects members that v lacks.
func strictJSON(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if dec.More() {
		return errors.New("more than one value")
	}
	return nil
}

// VerifyExport verifies the output of export as it is written. See [Verify].
func VerifyExport(export func(w io.Writer) error, trust *Trust, opts *VerifyOptions) (Report, error) {
	from, to := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		to.CloseWithError(export(to))
	}()
	report, err := Verify(from, trust, opts)
	from.CloseWithError(errVerified)
	<-ended // the caller may then close what the export reads
	return report, err
}

// errVerified ends an export that nobody reads any more.
var errVerified = errors.New("the verification is over")
