package client_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
)

func openKeys(t *testing.T, path string) *client.KeyFile {
	t.Helper()
	k, err := client.OpenKeyFile(path)
	must(t, err)
	t.Cleanup(func() { _ = k.Close() })
	return k
}

func keyFor(t *testing.T, k *client.KeyFile, name string) string {
	t.Helper()
	key, err := k.For(name)
	must(t, err)
	return key
}

func TestAKeyIsTheSameUntilItIsDoneWith(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	k := openKeys(t, path)
	first, other := keyFor(t, k, "order 1"), keyFor(t, k, "a\n\"b\" \\ é")
	if _, ok := semel.KeyTime(first); !ok || first == other || keyFor(t, k, "order 1") != first {
		t.Errorf("got %s and %s", first, other)
	}
	must(t, k.Close())
	k = openKeys(t, path)
	if keyFor(t, k, "order 1") != first || keyFor(t, k, "a\n\"b\" \\ é") != other {
		t.Error("another key after a restart")
	}
	must(t, k.Done("order 1"))
	must(t, k.Done("order 1"))
	must(t, k.Done("never heard of"))
	must(t, k.Close())
	k = openKeys(t, path)
	if names := k.Names(); len(names) != 1 || names[0] != "a\n\"b\" \\ é" {
		t.Errorf("left are %q", names)
	}
	if keyFor(t, k, "order 1") == first {
		t.Error("a key was used again after it was done with")
	}
	for _, bad := range []string{"", "\xff", strings.Repeat("x", 4097)} {
		if _, err := k.For(bad); err == nil {
			t.Errorf("the name %.10q was taken", bad)
		}
	}
}

func TestAJournalHasOneOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	k := openKeys(t, path)
	if _, err := client.OpenKeyFile(path); !errors.Is(err, client.ErrKeysLocked) {
		t.Errorf("opened twice: %v", err)
	}
	must(t, k.Close())
	must(t, k.Close())
	if _, err := k.For("x"); err == nil {
		t.Error("a closed journal made a key")
	}
	openKeys(t, path)
}

// TestAJournalSurvivesACrashAtAnyByte cuts the file off after each of its bytes, as a
// crash during a write does, and then does the same to whatever is written next.
func TestAJournalSurvivesACrashAtAnyByte(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "keys")
	k := openKeys(t, path)
	// The file's length and content after each step.
	type state struct {
		size int
		live map[string]string
	}
	live := map[string]string{}
	var states []state
	note := func() {
		text, err := os.ReadFile(path)
		must(t, err)
		states = append(states, state{len(text), maps.Clone(live)})
	}
	note()
	for i := range 3 {
		name := fmt.Sprint("order ", i)
		live[name] = keyFor(t, k, name)
		note()
		if i%2 == 1 {
			must(t, k.Done(name))
			delete(live, name)
			note()
		}
	}
	must(t, k.Close())
	whole, err := os.ReadFile(path)
	must(t, err)
	for cut := states[0].size; cut <= len(whole); cut++ {
		for _, tail := range []string{"", "\x00\x00\x00", "\x00\n"} {
			crashed := filepath.Join(dir, fmt.Sprint("crashed", cut, len(tail)))
			must(t, os.WriteFile(crashed, append(slices.Clone(whole[:cut]), tail...), 0o600))
			must(t, os.WriteFile(crashed+".new", []byte("semel-keys 1\nwhat a crash left"), 0o600))
			i := slices.IndexFunc(states, func(s state) bool { return s.size > cut }) - 1
			if i < 0 {
				i = len(states) - 1
			}
			for range 2 { // a repaired file opens again
				k, err := client.OpenKeyFile(crashed)
				if err != nil {
					t.Fatalf("cut at %d: %v", cut, err)
				}
				if names := k.Names(); len(names) != len(states[i].live) {
					t.Fatalf("cut at %d: there are %q, want %v", cut, names, states[i].live)
				}
				for name, key := range states[i].live {
					if keyFor(t, k, name) != key {
						t.Fatalf("cut at %d: another key for %s", cut, name)
					}
				}
				added := keyFor(t, k, "added")
				must(t, k.Close())
				states[i].live["added"] = added
			}
			delete(states[i].live, "added")
		}
	}
}

func TestDamageIsNotTakenForACrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	k := openKeys(t, path)
	for i := range 3 {
		keyFor(t, k, fmt.Sprint("order ", i))
	}
	must(t, k.Close())
	whole, err := os.ReadFile(path)
	must(t, err)
	last := strings.LastIndexByte(strings.TrimSuffix(string(whole), "\n"), '\n')
	for at := range last + 1 {
		damaged := slices.Clone(whole)
		damaged[at] ^= 1
		must(t, os.WriteFile(path, damaged, 0o600))
		if k, err := client.OpenKeyFile(path); err == nil {
			_ = k.Close()
			t.Fatalf("byte %d was changed, and the journal was opened", at)
		}
	}
	must(t, os.WriteFile(path, []byte("semel-keys 2\n"), 0o600))
	if _, err := client.OpenKeyFile(path); err == nil {
		t.Error("a journal of a newer version was opened")
	}
}

func TestAJournalDoesNotGrowForEver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	k := openKeys(t, path)
	kept := keyFor(t, k, "kept")
	for i := range 1500 {
		name := fmt.Sprint("order ", i)
		keyFor(t, k, name)
		must(t, k.Done(name))
	}
	info, err := os.Stat(path)
	if must(t, err); info.Size() > 1200*80 {
		t.Errorf("the journal has %d bytes for one key", info.Size())
	}
	if keyFor(t, k, "kept") != kept {
		t.Error("rewriting the journal lost a key")
	}
	must(t, k.Close())
	if keyFor(t, openKeys(t, path), "kept") != kept {
		t.Error("rewriting the journal lost a key")
	}
}

func TestConcurrentCallersOfOneNameGetOneKey(t *testing.T) {
	k := openKeys(t, filepath.Join(t.TempDir(), "keys"))
	keys := make([]string, 16)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() { keys[i], _ = k.For(fmt.Sprint("order ", i%2)) })
	}
	all.Wait()
	for i := range keys {
		if keys[i] == "" || keys[i] != keys[i%2] {
			t.Errorf("caller %d got %q", i, keys[i])
		}
	}
}

// TestACallIsSentAgainUnderItsKeyAfterACrash shows what the journal is for.
func TestACallIsSentAgainUnderItsKeyAfterACrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	s := newService(t, semel.Operation{Name: "op"})
	runs := 0
	for range 2 { // two lives of one program
		c, err := client.New("http://semel.test", &client.Options{Token: token, Transport: direct{s.handler}})
		must(t, err)
		keys := openKeys(t, path)
		call := call(keyFor(t, keys, "order 1"))
		ans, err := c.Do(t.Context(), call, func(context.Context, semel.Execution) (semel.Result, error) {
			runs++
			return data("x"), nil
		})
		if must(t, err); string(ans.Record.Result.Data) != "x" {
			t.Errorf("got %+v", ans.Record)
		}
		must(t, errors.Join(c.Close(), keys.Close()))
	}
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
}
