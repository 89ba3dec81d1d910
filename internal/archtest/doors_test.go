package archtest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// shared are the doors that others stand on: what an answer proves, work that is accepted
// now and done later, and what HTTP needs.
var shared = []string{"door/inbox", "door/judge", "door/semelhttp", "door/semelproxy"}

// beside is the one import of a door by another that is allowed: commands come as messages of
// the webhook whatsapp, whose signature and handshake that source knows.
var beside = map[string]string{"door/ids/whatsapp": "door/webhook"}

// doorOf is the door that a package belongs to, "" if it belongs to none.
func doorOf(rel string) string {
	dir, below := strings.CutPrefix(rel, "door/")
	if !below {
		return ""
	}
	name, _, _ := strings.Cut(dir, "/")
	return "door/" + name
}

// besideFaults finds doors that import each other. door/inbox, which doors share, knows the
// engine and the record model and no door.
func besideFaults(pkgs []pkg) []string {
	var faults []string
	for _, p := range pkgs {
		from := doorOf(p.rel())
		if from == "" || from == "door/doortest" || slices.Contains(shared, from) && from != "door/inbox" {
			continue
		}
		for _, path := range p.Imports {
			rel := relPath(path)
			if from == "door/inbox" && !standard(path) && rel != "." && rel != "store" && rel != "internal/form" {
				faults = append(faults, fmt.Sprintf("%s imports %s: it has the root package, store, the reader of kept forms and the standard library", p.rel(), rel))
			}
			if to := doorOf(rel); from != "door/inbox" && to != "" && to != from && !slices.Contains(shared, to) && beside[p.rel()] != rel {
				faults = append(faults, fmt.Sprintf("%s imports %s: what doors have in common is in door, door/inbox, door/judge and door/semelhttp", p.rel(), rel))
			}
		}
	}
	return faults
}

// accepting is how a door would make items durable by itself: by a lease of its own, or by
// messages to itself.
var accepting = regexp.MustCompile(`\b(take|accept)Lease\b\s*=|\bsemel\.Send\(`)

// acceptFaults finds doors that accept items in another way than by door/inbox.
func acceptFaults(name, text string) []string {
	doors := strings.HasPrefix(name, "door/webhook/") || strings.HasPrefix(name, "door/activitypub/") || strings.HasPrefix(name, "door/ids/whatsapp/")
	if !doors || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
		return nil
	}
	return lineFaults(name, text, accepting, "items are accepted by door/inbox")
}

func TestDoorsBesideEachOther(t *testing.T) {
	t.Run("doors import no other door", func(t *testing.T) { report(t, besideFaults(packages(t))) })
	t.Run("items are accepted in one place", func(t *testing.T) {
		leases := 0
		for name, text := range treeFiles(t) {
			report(t, acceptFaults(name, text))
			if strings.HasPrefix(name, "door/inbox/") && strings.HasSuffix(name, ".go") {
				leases += strings.Count(text, "const acceptLease =")
			}
		}
		if leases != 1 {
			t.Errorf("the lease of an item that is being accepted is defined %d times", leases)
		}
	})
}

func TestDoorRulesFind(t *testing.T) {
	const m = modulePath
	wantFaults(t, besideFaults([]pkg{
		{ImportPath: m + "/door/ids/whatsapp", Imports: []string{m, m + "/door/ids", m + "/door/inbox", m + "/door/webhook"}},
		{ImportPath: m + "/door/activitypub", Imports: []string{m + "/door/activitypub/httpsig", m + "/door/inbox"}},
		{ImportPath: m + "/server", Imports: []string{m + "/door/ids", m + "/door/webhook"}},
		{ImportPath: m + "/door/inbox", Imports: []string{"time", m, m + "/store"}},
	}))
	wantFaults(t, besideFaults([]pkg{
		{ImportPath: m + "/door/ids", Imports: []string{m + "/door/webhook"}},
		{ImportPath: m + "/door/activitypub", Imports: []string{m + "/door/webhook"}},
		{ImportPath: m + "/door/inbox", Imports: []string{m + "/internal/problem"}},
	}), "door/ids imports door/webhook", "door/activitypub imports door/webhook", "door/inbox imports internal/problem")
	own := "package webhook\n\nconst acceptLease = 1\n\tsemel.Send(x, m)\n"
	wantFaults(t, acceptFaults("door/webhook/a.go", own), "a.go:3", "a.go:4")
	wantFaults(t, acceptFaults("door/webhook/a_test.go", own))
	wantFaults(t, acceptFaults("door/inbox/a.go", own))
}
