package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// The callers of the crash tests write an entry with each version of a record. It
// names the version before, so that the log shows whatever is missing in it, and
// the last entry of an identity must be about the version that is stored.

// testEntry is the entry of one version of a record.
func testEntry(id semel.ID, before, version int64) store.Entry {
	leaf := fmt.Sprintf("%d %d %s", before, version, id.Key)
	return store.Entry{Leaf: []byte(leaf), Opening: []byte(leaf + " " + strings.Repeat("opened ", int(version%50))), Subject: testSubject(id)}
}

func testSubject(id semel.ID) store.Subject {
	d := id.Digest()
	return store.Subject(d[:])
}

// noteKey begins the keys of entries that belong to no record. Each names the one
// before it too.
const noteKey = "note "

// chronicle is what was read of a log so far.
type chronicle struct {
	size   uint64
	last   map[string]int64 // the version that the last entry of a key is about
	recent []store.Entry    // the last ones that were read
	// numbers are those of the entries of the identities that callers of every run
	// work on, which are also looked for by their subjects.
	numbers map[semel.ID][]uint64
}

func newChronicle() *chronicle {
	return &chronicle{last: map[string]int64{}, numbers: map[semel.ID][]uint64{}}
}

// read reads what was added to the log, and compares it with the records.
func (c *chronicle) read(ctx context.Context, s *Store, recs found) error {
	again, err := s.ReadEvidence(ctx, c.size-uint64(len(c.recent)), len(c.recent))
	if err != nil {
		return err
	}
	for i := range c.recent {
		if i >= len(again) || !bytes.Equal(again[i].Leaf, c.recent[i].Leaf) {
			return fmt.Errorf("the last of %d entries are others than they were", c.size)
		}
	}
	for {
		list, err := s.ReadEvidence(ctx, c.size, 1000)
		if err != nil {
			return err
		}
		for i := range list {
			if err := c.add(&list[i]); err != nil {
				return fmt.Errorf("entry %d: %w", c.size, err)
			}
		}
		if len(list) == 0 {
			break
		}
		c.recent = list[max(0, len(list)-64):]
	}
	m, err := readMeta(s.db)
	if err != nil {
		return err
	}
	if m.entries != c.size {
		return fmt.Errorf("the store counts %d entries and has %d", m.entries, c.size)
	}
	for id, is := range recs {
		if c.last[id.Key] != is.version {
			return fmt.Errorf("%s: version %d is stored, and its last entry is about version %d", id.Key, is.version, c.last[id.Key])
		}
	}
	for id, all := range c.numbers {
		want := all[max(0, len(all)-100):]
		got, err := s.FindEvidence(ctx, testSubject(id), want[0], len(want)+1)
		if err != nil {
			return err
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("%s has the entries %v, and %v are found", id.Key, want, got)
		}
	}
	return nil
}

// add adds one entry. The first version of a record follows none, be it after a
// purge; every other one must follow the last.
func (c *chronicle) add(en *store.Entry) error {
	var before, version int64
	head, key, ok := bytes.Cut(en.Leaf, []byte(" "))
	head2, key, ok2 := bytes.Cut(key, []byte(" "))
	if _, err := fmt.Sscan(string(head)+" "+string(head2), &before, &version); err != nil || !ok || !ok2 {
		return fmt.Errorf("the leaf %q was never written", en.Leaf)
	}
	id := testID(string(key))
	if want := testEntry(id, before, version); !bytes.Equal(en.Opening, want.Opening) || en.Subject != want.Subject {
		return fmt.Errorf("the entry of %q was never written", en.Leaf)
	}
	if before != 0 && before != c.last[id.Key] {
		return fmt.Errorf("%q follows an entry about version %d", en.Leaf, c.last[id.Key])
	}
	if lasting(id) {
		c.numbers[id] = append(c.numbers[id], c.size)
	}
	c.last[id.Key] = version
	c.size++
	return nil
}

// compare reports entries about records that are not stored, which nobody has
// tried to purge, and entries without a record that are gone.
func (c *chronicle) compare(h *history, recs found) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for key, version := range c.last {
		id := testID(key)
		if strings.HasPrefix(key, noteKey) {
			continue
		}
		if _, stored := recs[id]; stored {
			continue
		}
		if a := h.accounts[id]; a != nil && a.removing < purged(version) {
			errs = append(errs, fmt.Errorf("%s: the log has an entry about version %d, and nothing is stored", key, version))
		}
		delete(c.last, key)
	}
	for key, told := range h.notes {
		if c.last[key] < told {
			errs = append(errs, fmt.Errorf("%s: entry %d was acknowledged, and the last one is %d", key, told, c.last[key]))
		}
	}
	return errors.Join(errs...)
}

// note adds an entry that belongs to no record. Nobody else adds under this key.
func (c *caller) note(ctx context.Context) error {
	key := fmt.Sprint(noteKey, c.run, " ", c.own[0].Key)
	if err := c.store.AppendEvidence(ctx, []store.Entry{testEntry(testID(key), c.noted, c.noted+1)}); err != nil {
		return err
	}
	c.noted++
	c.history.mu.Lock()
	defer c.history.mu.Unlock()
	c.history.notes[key] = c.noted
	return nil
}
