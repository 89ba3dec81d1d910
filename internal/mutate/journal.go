package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
)

// journal is a file of verdicts, so that a run can be resumed. Each line begins with the digest
// of the mutated file, because the verdict only holds for that source.
type journal struct {
	file   *os.File // nil: no file
	judged map[string]verdict
}

// openJournal reads the verdicts in a file and opens it for more. Without a name, nothing is
// kept.
func openJournal(name string) (*journal, error) {
	j := &journal{judged: map[string]verdict{}}
	if name == "" {
		return j, nil
	}
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		// The last line of a run that was killed may be cut off.
		if f := strings.Split(line, "\t"); len(f) > 2 && strings.HasSuffix(line, "\n") {
			j.judged[f[0]] = verdict(f[1])
		}
	}
	j.file, err = os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return j, err
}

func (j *journal) find(m *mutant) (verdict, bool) {
	v, ok := j.judged[digest(m)]
	return v, ok
}

func (j *journal) add(m *mutant, v verdict, by string) error {
	if j.file == nil {
		return nil
	}
	_, err := fmt.Fprintln(j.file, strings.Join(append([]string{digest(m), string(v)}, append(describe(m), by)...), "\t"))
	return err
}

func (j *journal) close() {
	if j.file != nil {
		_ = j.file.Close() // a line that wasn't written whole is judged again
	}
}

func digest(m *mutant) string {
	sum := sha256.Sum256(append([]byte(m.file+"\x00"), m.apply(m.src)...))
	return hex.EncodeToString(sum[:8])
}
