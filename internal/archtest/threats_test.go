package archtest

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
)

// A threat is a way to abuse duplicates, replays or their records (IDS-XIV.1).
type threat struct {
	name, attack string
	clauses      []string
	mitigation   string
	tests        []string // file and name of each, with a blank between them
}

var threats = []threat{
	{
		"Replay", "somebody sends a recorded delivery again, or a sender repeats one that was answered", []string{"IDS-V.1", "IDS-IX.1"},
		"a delivery of a known command gets the recorded outcome and executes nothing; messages and webhooks are also recognised by their id, and their signature is checked before anything is read",
		[]string{"door/ids/gateway_test.go TestGateway", "door/ids/whatsapp/work_test.go TestWorkIsRepeated", "door/webhook/receiver_test.go TestConcurrentCopiesAreOneEvent", "internal/enginetest/engine_test.go TestFirstDeliveryExecutesAndDuplicatesGetItsResult"},
	},
	{
		"Resend", "a person or a program sends the same command again, in another message, at the same time, or long after it", []string{"IDS-V.1", "IDS-V.3", "IDS-VIII.1", "IDS-IX.2"},
		"the key is that of the meaning; one compare-and-set claims it; a financial or critical command that comes after its window is refused",
		[]string{"door/ids/whatsapp/work_test.go TestSameCommandInOtherMessages", "door/ids/whatsapp/whatsapp_test.go TestSameMessageAtOnce", "door/ids/late_test.go TestALateCommand"},
	},
	{
		"Collision", "a key is used again with another envelope, to change what runs or to read another outcome", []string{"IDS-VIII.5", "IDS-VIII.6"},
		"another fingerprint is rejected as `idempotency_conflict`, with evidence of both fingerprints; nothing is executed or shown",
		[]string{"door/ids/answers_test.go TestConflictsAreServed", "door/ids/key_test.go TestSuppliedKeys", "evidence/witness_test.go TestCollisionIsEvident", "internal/enginetest/engine_test.go TestAnotherPayloadConflicts"},
	},
	{
		"Confirmation replay", "a confirmation token is used again, for another command, by another person, or is guessed", []string{"IDS-X.1", "IDS-X.2", "IDS-X.3"},
		"a token is bound to tenant, principal, key, fingerprint and command, lasts 5 minutes at most, is used up by the claim, and five wrong ones void all; so is an operator's confirmation, and it leaves their name and reason",
		[]string{"internal/enginetest/confirm_test.go TestATokenIsBoundToItsCall", "internal/enginetest/confirm_test.go TestATokenIsUsedOnce", "internal/enginetest/confirm_test.go TestATokenIsShortLived", "internal/enginetest/confirm_test.go TestADigestBindsATokenToItsPrincipal", "internal/enginetest/confirm_test.go TestAConfirmedCallRunsOnceAndIsNotAskedAgain", "internal/enginetest/confirm_operator_test.go TestAnOperatorConfirmsOnlyTheCallThatWasAskedFor", "internal/enginetest/confirm_operator_test.go TestAnOperatorsConfirmationRunsOnce"},
	},
	{
		"Flood", "somebody sends very many duplicates, or asks for very many confirmations", []string{"IDS-XV.3"},
		"duplicates and requests for confirmation are limited for each command and each principal; the evidence log counts what is too much for entries of their own; quotas bound what is stored",
		[]string{"internal/enginetest/engine_test.go TestDuplicatesAreThrottled", "internal/enginetest/rates_test.go TestRatesAreNotShared", "internal/enginetest/confirm_test.go TestAskingForConfirmationIsLimited", "internal/enginetest/quota_test.go TestQuotaOfRecords"},
	},
	{
		"Cross-tenant", "a caller uses or reads the key, the outcome or the evidence of another tenant or principal", []string{"IDS-XV.1", "IDS-XV.4", "IDS-XII.7"},
		"tenant and principal are in the key and in the identity of the record, come from authentication only, and each replay is authorised and redacted for its reader",
		[]string{"door/ids/key_test.go TestDifferentMeaningsHaveDifferentKeys", "door/ids/redact_test.go TestRedact", "internal/enginetest/engine_test.go TestIdentity", "internal/enginetest/engine_test.go TestTenantSharingIsReauthorised", "internal/service/api/evidence_test.go TestCallersReadTheirOwnEvidence"},
	},
	{
		"Store tampering", "somebody who can write to the store deletes, changes, adds or puts back a record", []string{"IDS-XV.2", "IDS-XV.5", "IDS-XV.6"},
		"an audit compares each record with the log; a financial or critical command whose record is gone is held. What isn't prevented: a changed outcome is given out until an audit names it",
		[]string{"evidence/audit_test.go TestAuditOfTheStore", "evidence/missing_test.go TestACallWhoseRecordIsGoneIsHeld", "store/pgstore/evidence_log_test.go TestACallWhoseRowIsGoneIsHeld", "internal/service/audit_test.go TestADeletedRecordIsFoundAndPaysNothing"},
	},
	{
		"Evidence tampering", "somebody edits, drops, inserts or moves entries, cuts the log off, or puts an older one back", []string{"IDS-XV.2", "IDS-XV.5"},
		"a signed Merkle log, whose checkpoints are kept elsewhere; no node signs a log that doesn't contain the last one. What isn't prevented: an operator with store and key, if nobody else keeps checkpoints",
		[]string{"evidence/verify_test.go TestTampering", "evidence/story_test.go TestTheStoryIsJudged", "evidence/history_test.go TestLiesAreFoundInAnyHistory", "evidence/lastsigned_test.go TestALogThatWasPutBackIsNotSigned"},
	},
}

const threatsPage = "../../docs/threats.md"

// TestThreats compares the page of threats with the list above, whose clauses and tests exist.
func TestThreats(t *testing.T) {
	clause.Proves(t, "IDS-XIV.1")
	var page strings.Builder
	page.WriteString("# Threats\n\n- **For** people who attack Semel, on paper or for real.\n- **Afterwards** you know what Semel does about each threat, and which test tries it.\n\nThis page maps the ways in which somebody could abuse deliveries, replays and their records to the clauses of RFC-WF-0010 that forbid them, to what Semel does, and to the tests that try it. RFC-WF-0009 (TMSI) has the names of such threats. " +
		"It is made from a list in `internal/archtest`; a test fails if a clause or a test that it names is gone. [SECURITY.md](../SECURITY.md) says what is trusted, and [requirements.md](requirements.md) has all clauses.\n\n| threat | clauses | what Semel does | tests |\n|---|---|---|---|\n")
	for _, th := range threats {
		if len(th.clauses) == 0 || th.mitigation == "" || len(th.tests) == 0 {
			t.Errorf("%s lacks a clause, a mitigation or a test", th.name)
		}
		var tests []string
		for _, test := range th.tests {
			file, name, _ := strings.Cut(test, " ")
			text, err := os.ReadFile("../../" + file)
			if err != nil || !regexp.MustCompile(`(?m)^func `+name+`\(t \*testing\.T\)`).Match(text) {
				t.Errorf("%s: there is no test %s (%v)", th.name, test, err)
			}
			tests = append(tests, fmt.Sprintf("[`%s`](../%s)", name, path.Clean(file)))
		}
		for _, id := range th.clauses {
			if _, known := clause.Lookup(id); !known {
				t.Errorf("%s: there is no clause %s", th.name, id)
			}
		}
		fmt.Fprintf(&page, "| **%s**: %s | %s | %s | %s |\n", th.name, th.attack, strings.Join(th.clauses, ", "), th.mitigation, strings.Join(tests, ", "))
	}
	if *update {
		if err := os.WriteFile(threatsPage, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(threatsPage); err != nil || string(got) != page.String() {
		t.Errorf("docs/threats.md isn't what the list says (%v): run go test ./internal/archtest -run TestThreats -update", err)
	}
}
