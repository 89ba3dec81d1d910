package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

// jsonFlag adds --json to a command.
func jsonFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// asJSON reports whether the command line has --json.
func asJSON(cmd *cobra.Command) bool {
	is, _ := cmd.Flags().GetBool("json")
	return is
}

// newEncoder writes JSON, for a terminal without anything that the terminal would obey.
func newEncoder(w io.Writer) *json.Encoder {
	if isTerminal(w) {
		w = harmless{w}
	}
	return wire.NewEncoder(w)
}

// harmless escapes characters that JSON allows in a string and a terminal would obey: C1
// controls, and invisible ones that change the direction of text. The JSON means the same. Each
// Write must be of whole documents.
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

// newTable aligns columns that tabs separate.
func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 8, 2, ' ', 0) }

// labels prints names and values in two columns.
type labels struct {
	*tabwriter.Writer
	indent string
}

func newLabels(w io.Writer) labels { return labels{Writer: newTable(w)} }

func (l labels) line(name, format string, args ...any) {
	fmt.Fprintf(l, "%s%s\t%s\n", l.indent, name, fmt.Sprintf(format, args...))
}

// text prints a value that others chose, unless it is empty.
func (l labels) text(name, value string) {
	if value != "" {
		l.line(name, "%s", printable(value))
	}
}

// at prints an instant, unless it is zero.
func (l labels) at(name string, at store.Instant) {
	if at != 0 {
		l.line(name, "%s", at)
	}
}

// failure prints why something failed, if it did.
func (l labels) failure(name string, f *store.Failure) {
	if f != nil {
		l.line(name, "%s: %s", printable(f.Code), printable(f.Message))
	}
}

// printOne prints v as JSON, or a line of text for people.
func printOne(cmd *cobra.Command, v any, text string) error {
	return printReport(cmd, v, func(w io.Writer) error { _, err := fmt.Fprintln(w, text); return err }, false)
}

// printReport prints v as JSON, or by show for people, and ends the command with an error if
// something is wrong.
func printReport(cmd *cobra.Command, v any, show func(io.Writer) error, wrong bool) error {
	if asJSON(cmd) {
		show = func(w io.Writer) error { return printJSON(w, v) }
	}
	if err := show(cmd.OutOrStdout()); err != nil || !wrong {
		return err
	}
	return errReported
}
