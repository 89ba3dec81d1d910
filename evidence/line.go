package evidence

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"
)

// entryLine is the line of an entry, taken apart. Leaf and opening are parts of the
// line, unless they were in base64.
type entryLine struct {
	n       uint64
	claimed tlog.Hash
	hash    tlog.Hash // what the leaf gives
	leaf    []byte
	opening []byte // nil: erased, or left out
	proof   []byte // its JSON, if there is one
	told    told
	fault   string // what is wrong with the line itself
	kind    Kind
}

var (
	errLine      = errors.New("the line is not one that an export has")
	entryPrefix  = []byte(`{"n":`)
	hashPart     = []byte(`,"hash":"`)
	leafPart     = []byte(`","leaf":`)
	rawPart      = []byte(`","raw":"`)
	openingPart  = []byte(`,"opening":`)
	rawOpenPart  = []byte(`,"raw_opening":"`)
	proofPart    = []byte(`,"proof":`)
	null         = []byte(`null`)
	commitMember = []byte(`"commitment":"`)
)

// parseEntry takes the line of an entry apart. An export has one form for it, so
// nothing else is accepted.
func parseEntry(line []byte) (e entryLine, err error) {
	rest, ok := bytes.CutPrefix(line, entryPrefix)
	if !ok {
		return e, errLine
	}
	digits := 0
	for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
		digits++
	}
	if e.n, err = strconv.ParseUint(string(rest[:digits]), 10, 63); err != nil {
		return e, errLine
	}
	if rest, ok = bytes.CutPrefix(rest[digits:], hashPart); !ok || len(rest) < 2*tlog.HashSize {
		return e, errLine
	}
	if _, err := hex.Decode(e.claimed[:], rest[:2*tlog.HashSize]); err != nil {
		return e, errLine
	}
	rest = rest[2*tlog.HashSize:]
	if e.leaf, rest, ok = cutValue(rest, leafPart, rawPart); !ok || e.leaf == nil {
		return e, errLine
	}
	if e.opening, rest, ok = cutValue(rest, openingPart, rawOpenPart); !ok {
		return e, errLine
	}
	if proof, found := bytes.CutPrefix(rest, proofPart); found && len(proof) > 0 {
		e.proof, rest = proof[:len(proof)-1], proof[len(proof)-1:]
	}
	if string(rest) != "}" {
		return e, errLine
	}
	return e, nil
}

// cutValue cuts a member off that is an object, null, or something else in base64.
func cutValue(b, name, raw []byte) (value, rest []byte, ok bool) {
	if rest, ok := bytes.CutPrefix(b, name); ok {
		if rest, ok := bytes.CutPrefix(rest, null); ok {
			return nil, rest, true
		}
		end := objectEnd(rest)
		return rest[:end:end], rest[end:], end > 0
	}
	rest, ok = bytes.CutPrefix(b, raw)
	end := bytes.IndexByte(rest, '"')
	if !ok || end < 0 {
		return nil, nil, false
	}
	value, err := base64.StdEncoding.DecodeString(string(rest[:end]))
	if value == nil {
		value = []byte{}
	}
	return value, rest[end+1:], err == nil
}

// check hashes the leaf and compares the opening with what the leaf commits to.
func (e *entryLine) check() {
	e.hash = leafHash(e.leaf)
	if e.hash != e.claimed {
		e.kind, e.fault = KindChanged, "the leaf is not the one that its hash is of"
		return
	}
	e.told = tell(e.leaf)
	if e.opening == nil {
		return
	}
	_, after, ok := bytes.Cut(e.leaf, commitMember)
	var want [32]byte
	if ok && len(after) >= 64 {
		_, err := hex.Decode(want[:], after[:64])
		ok = err == nil
	}
	if !ok || Commit(e.opening) != want {
		e.kind, e.fault = KindOpening, "the opening is not the one that the leaf commits to"
	}
}

// checkProof checks that the entry is in the log of a checkpoint.
func (e *entryLine) checkProof(c Checkpoint) error {
	var texts []string
	if err := json.Unmarshal(e.proof, &texts); err != nil {
		return errLine
	}
	proof := make(tlog.RecordProof, len(texts))
	for i, text := range texts {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(raw) != tlog.HashSize {
			return errLine
		}
		copy(proof[i][:], raw)
	}
	if e.n >= c.Size {
		return errors.New("the entry has a number that the checkpoint does not")
	}
	if err := tlog.CheckRecord(proof, int64(c.Size), c.Root, int64(e.n), e.hash); err != nil {
		return errors.New("the proof does not lead to the checkpoint")
	}
	return nil
}
