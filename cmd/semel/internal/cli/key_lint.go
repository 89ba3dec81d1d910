package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/internal/keytemplate"
)

// lintReport is what semel key lint --json prints.
type lintReport struct {
	OK        bool           `json:"ok"`
	Templates []lintTemplate `json:"templates"`
}

type lintTemplate struct {
	Template string `json:"template"`
	// Source is "argument 1" or "FILE:LINE".
	Source   string                `json:"source"`
	Problems []keytemplate.Problem `json:"problems"`
}

func newKeyLint() *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "lint TEMPLATE...",
		Short: "Check key templates for what would break idempotency",
		Long: `Find what in a key template would give every delivery of a call a key of its
own, or different calls the same key: times, message and request ids, random
tokens, attempt counters, traces of the delivery; no field at all, or none that
says whose or which thing the call is about. All problems are reported, with
their column. The exit code is 1 if there is one.

Fields are judged by their names. A time that was stored with the intent before
the first delivery is accepted when its name says so: {intent.due_date}.

--file reads one template per line; empty lines and lines that begin with # are
skipped.

The JSON has ok and templates, each with template, source and problems, each of
those with rule, column, field, message and suggestion. The rules are syntax,
empty, constant, scope, time, random, message, attempt and delivery.`,
		Example: `  semel key lint 'payment:{order_id}:{amount}:{currency}'
  semel key lint --file templates.txt --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var report lintReport
			for i, template := range args {
				report.add(fmt.Sprintf("argument %d", i+1), template)
			}
			if file != "" {
				text, err := readAll(cmd, file)
				if err != nil {
					return err
				}
				report.addLines(inputName(file), string(text))
			}
			if len(report.Templates) == 0 {
				return usage("there is no template to check: give some, or a --file that has some")
			}
			report.OK = true
			for _, t := range report.Templates {
				report.OK = report.OK && len(t.Problems) == 0
			}
			if err := report.print(cmd.OutOrStdout(), asJSON); err != nil {
				return err
			}
			if !report.OK {
				return errReported
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "`file` with one template per line; - is standard input")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (r *lintReport) add(source, template string) {
	problems := keytemplate.Lint(template)
	if problems == nil {
		problems = []keytemplate.Problem{} // [] in JSON
	}
	r.Templates = append(r.Templates, lintTemplate{Template: template, Source: source, Problems: problems})
}

func (r *lintReport) addLines(name, text string) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			r.add(fmt.Sprintf("%s:%d", name, n), line)
		}
	}
}

func (r *lintReport) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, r)
	}
	for _, t := range r.Templates {
		if len(t.Problems) == 0 {
			fmt.Fprintf(w, "%s: ok: %s\n", t.Source, t.Template)
			continue
		}
		printProblems(w, t.Source, t.Template, t.Problems)
	}
	return nil
}

// printProblems shows a template with what is wrong in it, each with a mark
// under its place.
func printProblems(w io.Writer, source, template string, problems []keytemplate.Problem) {
	fmt.Fprintln(w, strings.TrimSpace(source+": "+template))
	margin := strings.Repeat(" ", len(source)+2)
	for _, p := range problems {
		width := 1
		if p.Field != "" {
			width = len(p.Field) + 2 // with its braces
		}
		fmt.Fprintf(w, "%s%s%s %s: %s\n", margin, strings.Repeat(" ", p.Column-1), strings.Repeat("^", width), p.Rule, p.Message)
		fmt.Fprintf(w, "%s%s%s %s\n", margin, strings.Repeat(" ", p.Column-1), strings.Repeat(" ", width), p.Suggestion)
	}
}
