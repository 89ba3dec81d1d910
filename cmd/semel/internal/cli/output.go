package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/internal/wire"
)

// jsonFlag adds --json to a command.
func jsonFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON")
}

// newEncoder writes JSON for programs as it is, and for a terminal so that it obeys nothing in
// it.
func newEncoder(w io.Writer) *json.Encoder {
	if isTerminal(w) {
		w = harmless{w}
	}
	return wire.NewEncoder(w)
}

// harmless escapes what a terminal would obey and JSON allows in a string: controls (C1), and
// signs that change the direction of a text or don't show. They mean the same. Each Write is
// of whole documents.
type harmless struct{ io.Writer }

func (h harmless) Write(p []byte) (int, error) {
	out := make([]byte, 0, len(p))
	for _, r := range string(p) {
		if r < 0x7f || !unicode.In(r, unicode.Cc, unicode.Cf) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	if _, err := h.Writer.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// printJSON writes one indented JSON document.
func printJSON(w io.Writer, v any) error {
	enc := newEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printReport prints v as JSON, or by show for people, and ends the command with an error if
// something is wrong.
func printReport(w io.Writer, asJSON bool, v any, show func(io.Writer) error, wrong bool) error {
	if asJSON {
		show = func(w io.Writer) error { return printJSON(w, v) }
	}
	if err := show(w); err != nil || !wrong {
		return err
	}
	return errReported
}
