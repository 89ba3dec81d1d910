package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/cmd/semel/internal/tail"
	"github.com/semelhq/semel/internal/lookup"
	"github.com/semelhq/semel/internal/service/query"
)

// completeQualifiers completes qualifiers of records, and completeEvents those of events.
var (
	completeQualifiers = completing(query.Names(), map[string][]string{"state": query.States()})
	completeEvents     = completing(append(query.Names(), "decision:"), map[string][]string{"state": query.States(), "decision": tail.Decisions})
)

// completing completes the names of qualifiers, and the values that some of them have.
func completing(names []string, values map[string][]string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		word = strings.TrimPrefix(word, " ") // Run puts it in front of a minus
		bare := strings.TrimPrefix(word, "-")
		minus := strings.TrimSuffix(word, bare)
		if name, value, valued := strings.Cut(bare, ":"); valued {
			return starting(value, minus+name+":", values[name]), cobra.ShellCompDirectiveNoFileComp
		}
		return starting(bare, minus, names), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// starting returns the words that begin with a text, each behind another one.
func starting(text, behind string, words []string) (found []string) {
	for _, w := range words {
		if strings.HasPrefix(w, text) {
			found = append(found, behind+w)
		}
	}
	return found
}

// complete completes a command and its subcommands: each takes as many arguments as its use line
// names, and the values of its flags can be completed.
func complete(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		complete(sub)
	}
	if most := strings.Count(cmd.Use, " "); cmd.Args == nil && !strings.Contains(cmd.Use, "...") {
		cmd.Args = func(cmd *cobra.Command, args []string) error { return atMost(most, cmd, args) }
	}
	for name, values := range map[string]cobra.CompletionFunc{
		"config":  cobra.FixedCompletions([]string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt),
		"context": completeContexts,
		"window":  cobra.FixedCompletions([]string{"5m", "15m", "1h", "3h", "24h", "168h"}, cobra.ShellCompDirectiveNoFileComp),
		"only":    cobra.FixedCompletions(lookup.Lists, cobra.ShellCompDirectiveNoFileComp),
		"outcome": cobra.FixedCompletions([]string{"completed", "rejected", "failed", "aborted"}, cobra.ShellCompDirectiveNoFileComp),
	} {
		if cmd.LocalNonPersistentFlags().Lookup(name) != nil || cmd.PersistentFlags().Lookup(name) != nil {
			if err := cmd.RegisterFlagCompletionFunc(name, values); err != nil {
				panic(err) // it has one already
			}
		}
	}
}
