package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/internal/service/query"
	"github.com/semelhq/semel/store"
)

// completeTime bounds how long a completion reads records.
const completeTime = 2 * time.Second

// completeQualifiers completes qualifiers, states, and the operations of the newest records.
func (from *recordsFrom) completeQualifiers(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	minus := ""
	word = strings.TrimPrefix(word, " ") // Run puts it in front of a minus
	if query.Excludes(word) || word == "-" {
		minus, word = "-", word[1:]
	}
	const directive = cobra.ShellCompDirectiveNoFileComp
	name, value, valued := strings.Cut(word, ":")
	var words []string
	switch {
	case !valued:
		for _, q := range query.Names() {
			if strings.HasPrefix(q, word) {
				words = append(words, minus+q)
			}
		}
		return words, directive | cobra.ShellCompDirectiveNoSpace
	case name == "state":
		words = query.States()
	case name == "operation":
		words = from.operations(cmd)
	}
	words = slices.DeleteFunc(words, func(w string) bool { return !strings.HasPrefix(w, value) })
	for i, w := range words {
		words[i] = minus + name + ":" + w
	}
	return words, directive
}

// operations returns those of the newest records, if it can read them.
func (from *recordsFrom) operations(cmd *cobra.Command) (names []string) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
	defer cancel()
	cmd.SetContext(ctx)
	from.source.look = true
	recs, closer, err := from.open(cmd, &from.source)
	if err != nil {
		return nil
	}
	defer closer.Close()
	page, err := recs.Search(ctx, store.Query{Limit: store.MaxSearchLimit})
	if err != nil {
		return nil
	}
	for i := range page.Records {
		names = append(names, page.Records[i].ID.Operation)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// completeFlags completes the values of flags, for a command and its subcommands.
func completeFlags(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		completeFlags(sub)
	}
	for name, complete := range map[string]cobra.CompletionFunc{
		"config":  cobra.FixedCompletions([]string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt),
		"context": completeContexts,
		"sort":    cobra.FixedCompletions(topOrderNames(), cobra.ShellCompDirectiveNoFileComp),
		"window":  cobra.FixedCompletions([]string{"5m", "15m", "1h", "3h", "24h", "168h"}, cobra.ShellCompDirectiveNoFileComp),
		"outcome": cobra.FixedCompletions([]string{"completed", "rejected", "failed", "aborted"}, cobra.ShellCompDirectiveNoFileComp),
	} {
		if cmd.LocalNonPersistentFlags().Lookup(name) != nil || cmd.PersistentFlags().Lookup(name) != nil {
			if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
				panic(err) // it has one already
			}
		}
	}
}
