package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestActivityPubInbox(t *testing.T) {
	var out bytes.Buffer
	ok, err := run(t.Context(), []string{"--json", "--reports", "20"}, &out)
	var s summary
	if err != nil || json.Unmarshal(out.Bytes(), &s) != nil || !ok {
		t.Fatalf("%v\n%s", err, &out)
	}
	// The numbers, and not only the example's own verdict on them.
	if s.Reports != 20 || s.Created != 20 || s.Validated != 20 || s.Twice != 0 || s.Activities != 40 || s.Deliveries != 160 ||
		s.Restarts != 1 || s.Refused != 1 || s.Conflicts != 1 || s.Again < 8 {
		t.Errorf("%+v", s)
	}
	if _, err := run(t.Context(), []string{"--reports", "0"}, &out); err == nil {
		t.Error("no reports")
	}
}

// TestREADME runs what the README says, and wants what it shows, but for the numbers that
// are up to chance.
func TestREADME(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?s)\$ go run ./examples/activitypub-inbox(.*?)\n(.*?)` + "```").FindStringSubmatch(string(text))
	if m == nil {
		t.Fatal("the README shows no run")
	}
	var out bytes.Buffer
	if ok, err := run(t.Context(), strings.Fields(m[1]), &out); err != nil || !ok {
		t.Fatalf("%v\n%s", err, &out)
	}
	chance := regexp.MustCompile(`[0-9]+ (senders|times)`)
	if got, want := chance.ReplaceAllString(out.String(), "N $1"), chance.ReplaceAllString(m[2], "N $1"); got != want {
		t.Errorf("it prints:\n%s\nand the README shows:\n%s", got, want)
	}
}
