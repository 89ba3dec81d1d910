package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/internal/docs"
)

// docsWidth is how wide a page is set: longer lines are hard to read.
const docsWidth = 88

func newDocs() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "docs [PAGE|WORD...]",
		Short: "Show a page of the documentation, or find one by words",
		Long: `Show a page of the documentation, or find one by words. All pages are in the program:
you need no network. Give nothing to list them.

The JSON of a page has name, title, kind, about, for, afterwards and text, which is
Markdown. Without a page it's a list: of all pages without their text, or of hits, each
with name, title, heading and excerpt. Exit code 3 means that no page has the words.`,
		Example: `  semel docs
  semel docs questions
  semel docs charged twice
  semel docs 409 --json`,
		ValidArgsFunction: func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
			return starting(word, "", docs.Ours().PageNames()), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			b, words := docs.Ours(), strings.Join(args, " ")
			if words == "" {
				list, text := b.Contents()
				return printOne(cmd, list, text)
			}
			if p := b.Page(words); p != nil {
				return printOne(cmd, p, p.Terminal(docsWidth, isTerminal(cmd.OutOrStdout())))
			}
			hits, text := b.Hits(words)
			if len(hits) == 0 {
				return notFound("no page of the documentation has %s; 'semel docs' lists all", printable(words))
			}
			return printOne(cmd, hits, text)
		},
	}
	return jsonFlag(cmd)
}
