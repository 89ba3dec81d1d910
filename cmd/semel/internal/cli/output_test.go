package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

// What strangers chose is shown on a terminal, and in the log, so that it obeys nothing.
func TestHarmlessJSON(t *testing.T) {
	text := "caf\u00e9 \u009b31m \u202e \u200b \x7f \U000e0001 \x1b[1m \u65e5"
	var out strings.Builder
	if err := json.NewEncoder(harmless{&out}).Encode(text); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), `"café \u009b31m \u202e \u200b \u007f \udb40\udc01 \u001b[1m 日"`+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var back string
	if err := json.Unmarshal([]byte(out.String()), &back); err != nil || back != text {
		t.Errorf("it means %q, %v", back, err)
	}
}
