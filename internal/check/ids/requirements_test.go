package ids

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
)

// frozen is the beginning of the digest of the sentences. It changes when a revision of the
// document is released, and the sentences of the former one stay.
const frozen = "5fc0ded2afe11614"

func TestRequirementsAreFrozenAndRestOnClauses(t *testing.T) {
	if got := fmt.Sprintf("%x", sha256.Sum256(requirements))[:16]; got != frozen {
		t.Errorf("the sentences have the digest %s, and are frozen as %q", got, frozen)
	}
	for _, rests := range regexp.MustCompile(`on: (?:"(.*?)"|(\S+)),`).FindAllStringSubmatch(string(requirements), -1) {
		for id := range strings.SplitSeq(rests[1]+rests[2], ", ") {
			if _, ok := clause.Lookup(id); !ok {
				t.Errorf("there is no clause %q", id)
			}
		}
	}
	var probed, written []string
	for _, g := range groups(new(kit)) {
		for _, p := range g.Probes {
			for id := range strings.FieldsSeq(p.IDs) {
				probed = append(probed, g.Name+"."+id)
			}
		}
	}
	for _, id := range regexp.MustCompile(`id: ([\w.]+),`).FindAllStringSubmatch(string(requirements), -1) {
		written = append(written, id[1])
	}
	if !slices.Equal(probed, written) {
		t.Errorf("there are probes for %q, and sentences for %q", probed, written)
	}
}

func TestEvidenceIsReadInAnyForm(t *testing.T) {
	for body, want := range map[string]string{
		`[{"decision":"first_seen","outcome_ref":"sha256:aa"}]`:                                                         "sha256:aa",
		`{"entries":[{"n":1,"leaf":{"payload":{"decision":"first_seen"}},"opening":{"outcome_sha256":"aa"}}],"next":2}`: "sha256:aa",
		`{"entries":[{"leaf":{"payload":{"decision":"first_seen"}},"opening":null}]}`:                                   "",
	} {
		list := artifacts(body)
		if len(list) != 1 || list[0]["decision"] != "first_seen" || want != "" && list[0]["outcome_ref"] != want {
			t.Errorf("%s is read as %v", body, list)
		}
	}
	if list := artifacts("no JSON"); list != nil {
		t.Errorf("it is read as %v", list)
	}
}
