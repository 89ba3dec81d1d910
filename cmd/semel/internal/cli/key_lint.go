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
	cmd := &cobra.Command{
		Use:   "lint TEMPLATE...",
		Short: "Check key templates for mistakes that break idempotency",
		Long: `Check key templates for fields that give every delivery of a call another key: times,
message and request ids, random tokens, attempt counters, traces of the delivery. Also
find templates that give different calls the same key, because they have no field, or
none that names the call's owner or subject. The output lists all problems, with their
column. The exit code is 1 if there are any.

The check looks only at the names of fields. Use {intent.due_date} for a time that was
stored with the intent, before the first delivery.

--file reads one template per line, and skips empty lines and lines that begin with #.

The JSON has ok and templates, each with template, source and problems; a problem has
rule, column, field, message and suggestion. The rules are syntax, empty, constant,
scope, time, random, message, attempt and delivery.`,
		Example: `  semel key lint 'payment:{order_id}:{amount}:{currency}'
  semel key lint --file templates.txt --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			report := lintReport{OK: true}
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
			return printReport(cmd, report, report.print, !report.OK)
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "`file` with one template per line; - is standard input")
	return jsonFlag(cmd)
}

func (r *lintReport) add(source, template string) {
	problems := keytemplate.Lint(template)
	if problems == nil {
		problems = []keytemplate.Problem{} // [] in JSON
	}
	r.OK = r.OK && len(problems) == 0
	r.Templates = append(r.Templates, lintTemplate{Template: template, Source: source, Problems: problems})
}

func (r *lintReport) addLines(name, text string) {
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			r.add(fmt.Sprintf("%s:%d", name, i+1), line)
		}
	}
}

func (r *lintReport) print(w io.Writer) error {
	for _, t := range r.Templates {
		if len(t.Problems) == 0 {
			fmt.Fprintf(w, "%s: ok: %s\n", t.Source, t.Template)
			continue
		}
		printProblems(w, t.Source, t.Template, t.Problems)
	}
	return nil
}

// printProblems shows a template with its problems, each marked at its place.
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
