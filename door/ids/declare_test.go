package ids

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/strictyaml"
)

// read decodes a registry file and does not look at what it says. What only a file can
// have wrong is in commands that are named as unreadable.
func read(t *testing.T, file string) (commands []Entry, unreadable map[string]bool) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rep := newReport(LoadOptions{})
	rep.NoBlanks = true
	reg := &Registry{}
	v := reflect.ValueOf(reg).Elem()
	if rep.Decode(data, v, strictyaml.Options{Bytes: maxFile, Depth: maxDepth}) {
		rep.Check("", v)
	}
	unreadable = map[string]bool{}
	for _, p := range rep.List {
		if !strings.HasSuffix(p.Message, " is missing") {
			unreadable[commandAt(p.Path)] = true
		}
	}
	return reg.Commands, unreadable
}

// commandAt is the beginning of a path that says which command it is in.
func commandAt(path string) string { at, _, _ := strings.Cut(path, "."); return at }

func TestNewRegistry(t *testing.T) {
	clause.Proves(t, "IDS-VI.1", "IDS-VI.2", "IDS-XI.1")

	t.Run("commands in Go become what those in a file become", func(t *testing.T) {
		commands, _ := read(t, "testdata/good/orders.yaml")
		reg, err := NewRegistry(commands, LoadOptions{Bindings: bindings()})
		if err != nil {
			t.Fatal(err)
		}
		want := orders(t)
		for i := range want.Commands {
			a, b := reg.Commands[i], want.Commands[i]
			if (a.schema == nil) != (b.schema == nil) {
				t.Errorf("%s has a schema: %v", b.Name(), a.schema != nil)
			}
			a.schema, b.schema = nil, nil
			if x, y := string(a.Args.Schema), string(b.Args.Schema); x != "" {
				var p, q any
				if json.Unmarshal([]byte(x), &p) != nil || json.Unmarshal([]byte(y), &q) != nil || !reflect.DeepEqual(p, q) {
					t.Errorf("%s has the schema %s, want %s", b.Name(), x, y)
				}
				a.Args.Schema, b.Args.Schema = nil, nil
			}
			if !reflect.DeepEqual(a, b) {
				t.Errorf("%+v, want %+v", a, b)
			}
		}
		if commands[0].Mutates != nil || commands[0].Evidence != "" {
			t.Error("the commands that were given are changed")
		}
	})

	t.Run("the same is wrong with them", func(t *testing.T) {
		files, err := filepath.Glob("testdata/bad/*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		compared := 0
		for _, file := range files {
			commands, unreadable := read(t, file)
			if len(commands) == 0 {
				continue
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, fromFile := Load(data, LoadOptions{Bindings: bindings()})
			_, fromGo := NewRegistry(commands, LoadOptions{Bindings: bindings()})
			a, b := said(fromGo, unreadable), said(fromFile, unreadable)
			if compared += len(b); !slices.Equal(a, b) {
				t.Errorf("%s:\n%s\nwant\n%s", file, strings.Join(a, "\n"), strings.Join(b, "\n"))
			}
		}
		if compared < 40 {
			t.Errorf("only %d problems were compared", compared)
		}
	})

	t.Run("what a file could not say is refused, all at once, by its path", func(t *testing.T) {
		_, err := NewRegistry([]Entry{{
			Entity: "order", Class: "I9", Window: -1,
			Args: Args{Schema: json.RawMessage(`{"type":1,"type":2}`), Strip: []Path{""}, Normalise: []Normalisation{{Path: "a", Rules: []Rule{"shout"}}}},
		}, {
			Entity: "order", Action: "ship", Handler: HandlerEntry{Func: "a"},
		}, {
			Entity: "order", Action: "ship", Handler: HandlerEntry{Func: "a"},
		}, {
			Entity: "order", Action: "pay", Class: semel.Shielded, Handler: HandlerEntry{Func: "a"},
			Shields: []ShieldEntry{{Strategy: semel.ShieldProviderKey, Header: "X Key:"}},
		}}, LoadOptions{File: "orders.go"})
		problems, _ := errors.AsType[Problems](err)
		var paths []string
		for _, p := range problems {
			paths = append(paths, p.Path)
			if p.Line != 0 || p.Column != 0 || !strings.HasPrefix(p.Error(), "orders.go: commands[") {
				t.Errorf("%s", p)
			}
		}
		for _, want := range []string{
			"commands[0].action", "commands[0].class", "commands[0].window", "commands[0].args.schema", "commands[0].args.strip[0]",
			"commands[0].args.normalise[0].rules[0]", "commands[0].handler", "commands[2]", "commands[3].shields[0].header",
		} {
			if !slices.Contains(paths, want) {
				t.Errorf("nothing is said of %s: %v", want, err)
			}
		}
	})

	t.Run("none is no registry", func(t *testing.T) {
		if _, err := NewRegistry(nil, LoadOptions{}); err == nil {
			t.Error("it is taken")
		}
	})

	t.Run("an entry of another registry brings nothing but what can be declared", func(t *testing.T) {
		e := *lookup(t, "order", "cancel")
		e.Args.Schema = nil
		reg, err := NewRegistry([]Entry{e}, LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := reg.Lookup("order", "cancel"); again.schema != nil {
			t.Error("the schema that it had is still there")
		}
	})

	t.Run("nothing is shared with what was given", func(t *testing.T) {
		commands := []Entry{{Entity: "order", Action: "ship", Confirmation: &Confirmation{TTL: Duration(time.Minute)}, Rights: Rights{Execute: []string{"ship"}}, Handler: HandlerEntry{Func: "a"}}}
		reg, err := NewRegistry(commands, LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		commands[0].Confirmation.TTL, commands[0].Rights.Execute[0] = Duration(time.Hour), "other"
		e, _ := reg.Lookup("order", "ship")
		if e.Confirmation.TTL != Duration(time.Minute) || !e.MayExecute([]string{"ship"}) || e.Class != semel.Strict {
			t.Errorf("%+v", e)
		}
	})
}

// said is the paths and the messages of the problems of commands, without places.
func said(err error, unreadable map[string]bool) (list []string) {
	problems, _ := errors.AsType[Problems](err)
	for _, p := range problems {
		if at := commandAt(p.Path); strings.HasPrefix(at, "commands[") && !unreadable[at] {
			// In Go an empty handler is none.
			list = append(list, p.Path+": "+strings.Replace(p.Message, "neither func nor url is given", "handler is missing", 1))
		}
	}
	slices.Sort(list)
	return list
}
