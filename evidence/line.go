package evidence

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"regexp"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/store"
)

type headerLine struct {
	Version int    `json:"semel_evidence"`
	Origin  string `json:"origin"`
	Size    uint64 `json:"size"`
	View    string `json:"view"`
	Tenant  string `json:"tenant_id,omitempty"`
}

// The views.
const (
	viewLog     = "log"
	viewTenant  = "tenant"
	viewEntries = "entries"
)

type checkpointLine struct {
	Checkpoint string `json:"checkpoint"`
}

type endLine struct {
	End *uint64 `json:"end"`
}

// entryLine is the line of an entry. Leaf and opening are in Raw and RawOpening if they aren't
// plain JSON objects.
type entryLine struct {
	N          uint64           `json:"n"`
	Hash       string           `json:"hash"`
	Leaf       json.RawMessage  `json:"leaf,omitzero"`
	Raw        []byte           `json:"raw,omitzero"`
	Opening    json.RawMessage  `json:"opening,omitzero"`
	RawOpening []byte           `json:"raw_opening,omitzero"`
	Proof      tlog.RecordProof `json:"proof,omitzero"`
}

var (
	entryPrefix = []byte(`{"n":`)
	null        = json.RawMessage("null")
	errLine     = errors.New("the line is not one that an export has")
)

func lineOf(n uint64, en *store.Entry, openings bool, proof tlog.RecordProof) *entryLine {
	hash := leafHash(en.Leaf)
	l := &entryLine{N: n, Hash: hex.EncodeToString(hash[:]), Opening: null, Proof: proof}
	l.Leaf, l.Raw = asMember(en.Leaf)
	if openings && en.Opening != nil {
		l.Opening, l.RawOpening = asMember(en.Opening)
	}
	return l
}

// asMember returns data as a plain object, if it is one without white space around its
// members, and otherwise as raw.
func asMember(data []byte) (plain json.RawMessage, raw []byte) {
	var compact bytes.Buffer
	if bytes.HasPrefix(data, []byte("{")) && json.Compact(&compact, data) == nil && bytes.Equal(compact.Bytes(), data) {
		return data, nil
	}
	return nil, append([]byte{}, data...) // not nil
}

// fromMember undoes asMember.
func fromMember(plain json.RawMessage, raw []byte) (data []byte, ok bool) {
	if raw != nil {
		return raw, true
	}
	return plain, bytes.HasPrefix(plain, []byte("{"))
}

// checkedEntry is an entry of an export, with its own fault.
type checkedEntry struct {
	n        uint64
	hash     tlog.Hash // of the leaf
	artifact Artifact  // content of the leaf; zero if it isn't a leaf
	erased   bool      // the opening was erased, or left out
	leaf     []byte
	opening  []byte // nil: erased
	proof    tlog.RecordProof
	told     told
	kind     Kind
	fault    string // empty: nothing is wrong
}

// entryForm has the names of an entry's members, in their order.
var entryForm = regexp.MustCompile(`^n hash (leaf|raw) (opening|raw_opening) (proof )?$`)

// parseEntry reads the line of an entry. An export has only one form for it, so it accepts no
// other names and no other order.
func parseEntry(line []byte) (l entryLine, ok bool) {
	var names, rest []byte
	ok = true
	read := func(value []byte, into any) {
		ok = ok && !bytes.Equal(value, null) && json.Unmarshal(value, into) == nil
	}
	for name, value := range jsonscan.Members(line) {
		names = append(append(names, name...), ' ')
		rest = line[jsonscan.Offset(line, value)+len(value):]
		switch string(name) {
		case "n":
			read(value, &l.N)
		case "hash":
			read(value, &l.Hash)
		case "leaf":
			l.Leaf = value
		case "raw":
			read(value, &l.Raw)
		case "opening":
			l.Opening = value
		case "raw_opening":
			read(value, &l.RawOpening)
		case "proof":
			read(value, &l.Proof)
		}
	}
	return l, ok && entryForm.Match(names) && string(rest) == "}"
}

// checkEntry reads the line of an entry, hashes the leaf, and checks the opening against the
// leaf's commitment.
func checkEntry(line []byte) (e checkedEntry) {
	l, ok := parseEntry(line)
	leaf, isLeaf := fromMember(l.Leaf, l.Raw)
	opening, isOpening := fromMember(l.Opening, l.RawOpening)
	e.erased = bytes.Equal(l.Opening, null)
	if !ok || !isLeaf || !isOpening && !e.erased {
		return checkedEntry{kind: KindFormat, fault: errLine.Error()}
	}
	e.n, e.hash, e.proof, e.leaf = l.N, leafHash(leaf), l.Proof, leaf
	if hex.EncodeToString(e.hash[:]) != l.Hash {
		e.kind, e.fault = KindChanged, "the leaf is not the one that its hash is of"
		return e
	}
	var err error
	if e.artifact, err = ParseArtifact(leaf); err == nil {
		e.told = tell(&e.artifact)
	}
	if sum := Commit(opening); !e.erased && hex.EncodeToString(sum[:]) != e.artifact.Commitment {
		e.kind, e.fault = KindOpening, "the opening is not the one that the leaf commits to"
	} else if !e.erased {
		e.opening = opening
	}
	return e
}

// checkProof checks that a checkpoint's log has the entry.
func (e *checkedEntry) checkProof(c Checkpoint) error {
	if e.proof == nil {
		return errLine
	}
	if e.n >= c.Size {
		return errors.New("the entry has a number that the checkpoint does not")
	}
	if err := tlog.CheckRecord(e.proof, int64(c.Size), c.Root, int64(e.n), e.hash); err != nil {
		return errors.New("the proof does not lead to the checkpoint")
	}
	return nil
}
