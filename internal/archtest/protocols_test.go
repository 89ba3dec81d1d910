package archtest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// beside are the imports of one protocol by another that are allowed: commands come as
// messages of the webhook whatsapp, whose signature and handshake that source knows.
var beside = map[string]string{"protocol/ids/whatsapp": "protocol/webhook"}

// protocolOf is the protocol that a package belongs to, "" if it belongs to none.
func protocolOf(rel string) string {
	dir, isProtocol := strings.CutPrefix(rel, "protocol/")
	if !isProtocol {
		return ""
	}
	name, _, _ := strings.Cut(dir, "/")
	return "protocol/" + name
}

// protocolFaults finds protocols that import each other. What they have in common is in
// protocol/inbox, which knows the engine and the record model and no protocol.
func protocolFaults(pkgs []pkg) []string {
	var faults []string
	for _, p := range pkgs {
		from := protocolOf(p.rel())
		if from == "" {
			continue
		}
		for _, path := range p.Imports {
			rel := relPath(path)
			if from == "protocol/inbox" && !standard(path) && rel != "." && rel != "store" && rel != "internal/form" {
				faults = append(faults, fmt.Sprintf("%s imports %s: it has the root package, store, the reader of kept forms and the standard library", p.rel(), rel))
			}
			if to := protocolOf(rel); from != "protocol/inbox" && to != "" && to != from && to != "protocol/inbox" && beside[p.rel()] != rel {
				faults = append(faults, fmt.Sprintf("%s imports %s: what protocols have in common is in protocol/inbox", p.rel(), rel))
			}
		}
	}
	return faults
}

// accepting is how a door would make items durable by itself: by a lease of its own, or by
// messages to itself.
var accepting = regexp.MustCompile(`\b(take|accept)Lease\b\s*=|\bsemel\.Send\(`)

// acceptFaults finds doors that accept items in another way than by protocol/inbox.
func acceptFaults(name, text string) []string {
	doors := strings.HasPrefix(name, "protocol/webhook/") || strings.HasPrefix(name, "protocol/activitypub/") || strings.HasPrefix(name, "protocol/ids/whatsapp/")
	if !doors || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
		return nil
	}
	return lineFaults(name, text, accepting, "items are accepted by protocol/inbox")
}

func TestProtocols(t *testing.T) {
	t.Run("protocols import no other protocol but inbox", func(t *testing.T) { report(t, protocolFaults(packages(t))) })
	t.Run("items are accepted in one place", func(t *testing.T) {
		leases := 0
		for name, text := range treeFiles(t) {
			report(t, acceptFaults(name, text))
			if strings.HasPrefix(name, "protocol/inbox/") && strings.HasSuffix(name, ".go") {
				leases += strings.Count(text, "const acceptLease =")
			}
		}
		if leases != 1 {
			t.Errorf("the lease of an item that is being accepted is defined %d times", leases)
		}
	})
}

func TestProtocolRulesFind(t *testing.T) {
	const m = modulePath
	wantFaults(t, protocolFaults([]pkg{
		{ImportPath: m + "/protocol/ids/whatsapp", Imports: []string{m, m + "/protocol/ids", m + "/protocol/inbox", m + "/protocol/webhook"}},
		{ImportPath: m + "/protocol/activitypub", Imports: []string{m + "/protocol/activitypub/httpsig", m + "/protocol/inbox"}},
		{ImportPath: m + "/server", Imports: []string{m + "/protocol/ids", m + "/protocol/webhook"}},
		{ImportPath: m + "/protocol/inbox", Imports: []string{"time", m, m + "/store"}},
	}))
	wantFaults(t, protocolFaults([]pkg{
		{ImportPath: m + "/protocol/ids", Imports: []string{m + "/protocol/webhook"}},
		{ImportPath: m + "/protocol/activitypub", Imports: []string{m + "/protocol/webhook"}},
		{ImportPath: m + "/protocol/inbox", Imports: []string{m + "/internal/problem"}},
	}), "protocol/ids imports protocol/webhook", "protocol/activitypub imports protocol/webhook", "protocol/inbox imports internal/problem")
	own := "package webhook\n\nconst acceptLease = 1\n\tsemel.Send(x, m)\n"
	wantFaults(t, acceptFaults("protocol/webhook/a.go", own), "a.go:3", "a.go:4")
	wantFaults(t, acceptFaults("protocol/webhook/a_test.go", own))
	wantFaults(t, acceptFaults("protocol/inbox/a.go", own))
}
