package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/clause"
	"github.com/semelhq/semel/store/memstore"
)

// TestMain lets this test binary be a node, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == nodeCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestRefunds(t *testing.T) {
	clause.Proves(t, "IDS-V.1", "IDS-VII.4", "IDS-IX.1", "IDS-IX.3", "IDS-IX.4", "IDS-X.3", "IDS-XI.S1",
		"IDS-XII.1", "IDS-XII.2", "IDS-XII.3", "IDS-XIII.1", "IDS-XIII.2", "IDS-XIII.3")
	if testing.Short() {
		t.Skip("nodes are not started with -short")
	}
	var out bytes.Buffer
	ok, err := run(t.Context(), []string{"--json", "--refunds", "60", "--kills", "6"}, &out)
	var s summary
	if err := errors.Join(err, json.Unmarshal(out.Bytes(), &s)); err != nil || !ok {
		t.Fatalf("%v\n%s", err, &out)
	}
	t.Logf("%+v", s)
	// The numbers, and not only the example's own verdict on them.
	if s.Paid != 60 || s.Twice != 0 || s.Wrong != 0 || s.Answered != 60 || s.Differing != 0 || s.Admitted != 0 {
		t.Error("not every refund was paid once, and told in one way")
	}
	if a := s.Audit; !a.Intact || a.FirstSeen != 60 || a.Executed != 60 || a.Repeated != 0 || a.Confirmed != 60 || !a.Found {
		t.Errorf("the evidence: %+v", a)
	}
	if s.Kills != 6 || s.Again == 0 || s.Audit.Duplicates == 0 || s.Audit.Conflicts < 3 || s.Forged == 0 {
		t.Error("the run was no test: nothing was killed, repeated, changed or forged")
	}
}

// TestREADME runs what the README says, and wants what it shows, but for the numbers.
func TestREADME(t *testing.T) {
	if testing.Short() {
		t.Skip("nodes are not started with -short")
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(lang string) string {
		_, after, _ := strings.Cut(string(text), "```"+lang+"\n")
		body, _, ok := strings.Cut(after, "```")
		if !ok {
			t.Fatalf("the README has no block of %s", lang)
		}
		return strings.TrimSpace(body)
	}
	args, ok := strings.CutPrefix(block("sh"), "go run ./examples/whatsapp-refunds")
	if !ok || strings.Contains(args, "\n") {
		t.Fatalf("the README runs something else: %s", args)
	}
	var out bytes.Buffer
	if ok, err := run(t.Context(), strings.Fields(args), &out); err != nil || !ok {
		t.Fatalf("%v\n%s", err, &out)
	}
	t.Log("\n" + out.String())
	number := regexp.MustCompile(`\d+`)
	plain := func(s string) string { return number.ReplaceAllString(strings.TrimSpace(s), "0") }
	if got, want := plain(out.String()), plain(block("text")); got != want {
		t.Errorf("it prints\n%s\nthe README\n%s", &out, block("text"))
	}
	// Numbers that never differ.
	for _, line := range []string{"200 refunds paid by the payment service's own count, 0 of them twice, 0 with another amount\n", "200 buyers told, 0 of them different things\n"} {
		if !strings.Contains(out.String(), line) || !strings.Contains(string(text), line) {
			t.Errorf("no %q", line)
		}
	}
}

func TestFaults(t *testing.T) {
	good := summary{
		Refunds: 10, Messages: 20, Deliveries: 90, Kills: 2, Paid: 10, Requests: 12, Known: 2, Answered: 10, Conflicts: 1,
		Audit: audit{Entries: 100, FirstSeen: 10, Executed: 10, Confirmed: 10, Duplicates: 50, Conflicts: 1, Intact: true, Found: true},
	}
	o := options{refunds: 10, copies: 10, kills: 2}
	if faults := good.faults(&o); len(faults) > 0 {
		t.Fatalf("a good run: %v", faults)
	}
	for name, spoil := range map[string]func(*summary){
		"a refund that was paid twice":      func(s *summary) { s.Twice++ },
		"a refund that was not paid":        func(s *summary) { s.Paid, s.Requests = 9, 11 },
		"a request nobody asked for":        func(s *summary) { s.Requests++ },
		"another amount":                    func(s *summary) { s.Wrong++ },
		"a buyer who was not told":          func(s *summary) { s.Answered-- },
		"a buyer who was told two things":   func(s *summary) { s.Differing++ },
		"a forged delivery":                 func(s *summary) { s.Admitted++ },
		"a kill that did not happen":        func(s *summary) { s.Kills-- },
		"no duplicates":                     func(s *summary) { s.Deliveries = 20 },
		"evidence that does not verify":     func(s *summary) { s.Audit.Intact = false },
		"an execution without evidence":     func(s *summary) { s.Audit.Executed-- },
		"an execution too many":             func(s *summary) { s.Audit.Repeated++ },
		"a refund without its first":        func(s *summary) { s.Audit.FirstSeen-- },
		"an execution without confirmation": func(s *summary) { s.Audit.Confirmed-- },
		"a conflict without evidence":       func(s *summary) { s.Audit.Conflicts-- },
		"a changed entry that is not found": func(s *summary) { s.Audit.Found = false },
	} {
		t.Run("it tells of "+name, func(t *testing.T) {
			bad := good
			spoil(&bad)
			if faults := bad.faults(&o); len(faults) != 1 {
				t.Errorf("faults: %v", faults)
			}
		})
	}
}

// TestFlip changes many bytes, each in an entry of its own choice, and wants each to
// be named.
func TestFlip(t *testing.T) {
	clause.Proves(t, "IDS-XII.1")
	store := memstore.New()
	defer store.Close()
	keys, err := evidence.GenerateKeys("example.com/refunds")
	if err != nil {
		t.Fatal(err)
	}
	log, err := evidence.New(store, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := semel.New(store, &semel.Options{Witness: log, Operations: []semel.Operation{{Name: "order.refund", Evidence: semel.EvidenceDurable}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "a", "b", "c"} {
		ans, err := engine.Begin(t.Context(), semel.Call{Operation: "order.refund", Key: key})
		if err == nil && ans.Decision == semel.Execute {
			err = ans.Attempt.Complete(t.Context(), semel.Result{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := errors.Join(engine.Close(t.Context()), log.Close(t.Context()), log.Integrate(t.Context())); err != nil {
		t.Fatal(err)
	}
	reader, err := log.Reader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Export(t.Context(), &out, nil); err != nil {
		t.Fatal(err)
	}
	var a audit
	if err := a.count(out.Bytes()); err != nil || a.FirstSeen != 3 || a.Executed != 3 || a.Replayed != 1 || a.Repeated != 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	_, at := reader.Checkpoint()
	for range 300 {
		data, n := bytes.Clone(out.Bytes()), rand.Uint64N(at.Size)
		if err := flip(data, n); err != nil {
			t.Fatal(err)
		}
		report, err := evidence.Verify(bytes.NewReader(data), keys.Trust(), nil)
		if err != nil || report.Finding == nil || report.Finding.First != n || report.Finding.Last != n {
			t.Fatalf("entry %d: %v, %v", n, report.Finding, err)
		}
	}
	t.Run("an export that was changed is no evidence", func(t *testing.T) {
		dir := t.TempDir()
		signed, _ := reader.Checkpoint()
		data := bytes.Clone(out.Bytes())
		if err := flip(data, 1); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string][]byte{"log": data, "pub": keys.Trust().Text(), "latest": []byte(signed)} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if a, err := verify(filepath.Join(dir, "log"), filepath.Join(dir, "pub"), dir); err != nil || a.Intact || !strings.HasPrefix(a.Finding, "entry 1:") {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"--refunds", "0"}, {"--copies", "2"}, {"--refunds", "2", "--kills", "100"}, {"--what"}} {
		if ok, err := run(t.Context(), args, &bytes.Buffer{}); ok || err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}
