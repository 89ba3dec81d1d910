package evidence

import (
	"testing"

	"github.com/semelhq/semel"
)

// An entry by a program that had no flag for held records describes the record that it made.
func TestAHeldRecordOfAnEarlierProgramIsNotChanged(t *testing.T) {
	l := &Log{}
	held := semel.Record{ID: semel.ID{Operation: "op", Key: "k"}, State: semel.Processing, Held: true, HeldReason: "the provider did not answer"}
	before := held
	before.Held = false // as codec.Append writes a reason without the flag
	content := l.content(&before, OutcomeDigest(&before))
	if content == l.content(&held, OutcomeDigest(&held)) {
		t.Fatal("the flag is not part of the digest")
	}
	if !l.describes(content, &held) || !l.describes(l.content(&held, OutcomeDigest(&held)), &held) {
		t.Error("the held record counts as changed")
	}
	held.HeldReason = "another"
	if l.describes(content, &held) {
		t.Error("another reason isn't noticed")
	}
	ended := semel.Record{ID: held.ID, State: semel.Failed, Held: false}
	if l.describes(content, &ended) {
		t.Error("a record that was made to run again isn't noticed")
	}
}
