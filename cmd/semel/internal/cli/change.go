package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/store"
)

// change is the common part of commands that change a T irrevocably, or with --all many: they
// need a reason, and ask for confirmation first.
type change[T any] struct {
	from        *recordsFrom
	reason      string
	yes, dryRun bool
	asJSON      bool
	all         bool
}

// kind is one kind of things that commands change: records, or messages.
type kind[T any] interface {
	// words name a thing, and the state that --all selects.
	words() (noun, state string)
	// named reads which thing the command line names, and returns how to find it.
	named(cmd *cobra.Command, args []string) (func(ctx context.Context, recs client.Records) (*T, error), error)
	// mayAll refuses flags that name one thing.
	mayAll(cmd *cobra.Command) error
	// search calls each with everything in that state that q selects.
	search(ctx context.Context, cmd *cobra.Command, recs client.Records, q store.Query, each func(*T)) error
	// id names the thing in a warning.
	id(*T) string
	// show and list print one thing, and several in rows.
	show(io.Writer, *T) error
	list(io.Writer, []*T) error
	// line is the JSON of a change; after is nil if there is no record then, or nothing was
	// done.
	line(head changeHead, of *T, after *semel.Record) any
	// done is a sentence about the thing after the change.
	done(action string, after *semel.Record) string
}

// action is a change that a command makes.
type action[T any] struct {
	name, means string
	// check refuses what the store would refuse.
	check func(*T) error
	// do returns the record that is stored afterwards, if there is one.
	do func(ctx context.Context, recs client.Records, of *T) (*semel.Record, error)
}

// changeHead is the common part of what --json prints of a change.
type changeHead struct {
	// Action is "settle", "release", "purge", "replay" or "discard".
	Action string `json:"action"`
	// Done is false for a dry run.
	Done   bool   `json:"done"`
	Reason string `json:"reason"`
}

// flags adds the flags. readers says who reads the reason later, all describes --all; without
// it there is no such flag.
func (c *change[T]) flags(cmd *cobra.Command, readers, all string) {
	flags := cmd.Flags()
	flags.StringVar(&c.reason, "reason", "", "why, for those who "+readers)
	flags.BoolVar(&c.yes, "yes", false, "do not ask whether to go on")
	flags.BoolVar(&c.dryRun, "dry-run", false, "only say what would happen")
	if all != "" {
		flags.BoolVar(&c.all, "all", false, all)
	}
	jsonFlag(cmd, &c.asJSON)
}

// apply shows the thing that is named, asks for confirmation, and changes it.
func (c *change[T]) apply(cmd *cobra.Command, args []string, k kind[T], act action[T]) error {
	noun, _ := k.words()
	if c.all {
		return c.applyAll(cmd, args, k, act)
	}
	find, err := k.named(cmd, args)
	if err == nil {
		err = c.check(cmd, noun)
	}
	if err != nil {
		return err
	}
	return c.from.with(cmd, func(ctx context.Context, recs client.Records) error {
		of, err := find(ctx, recs)
		if err == nil {
			err = act.check(of)
		}
		if err != nil {
			return err
		}
		goOn, err := c.ask(cmd, act.name, act.means, func(w io.Writer) error { return k.show(w, of) })
		if err != nil {
			return err
		}
		var after *semel.Record
		sentence := "Nothing was changed: this was a dry run."
		if goOn {
			if after, err = act.do(ctx, recs, of); err != nil {
				return err
			}
			sentence = k.done(act.name, after)
		}
		if c.asJSON {
			return printJSON(cmd.OutOrStdout(), k.line(changeHead{act.name, goOn, c.reason}, of, after))
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), sentence)
		return err
	})
}

// applyAll is apply for all things that wait in the records that the qualifiers in args select.
// All are shown and confirmed together; then they are changed one by one. One that can't be
// changed, because it has an open effect or somebody else was faster, gets a warning, and the
// others go on. A crash in between leaves the rest as it is: the same command finds it.
func (c *change[T]) applyAll(cmd *cobra.Command, args []string, k kind[T], act action[T]) error {
	noun, state := k.words()
	q, err := parseQuery(args)
	if err == nil {
		err = k.mayAll(cmd)
	}
	if err == nil {
		err = c.check(cmd, noun+"s")
	}
	if err != nil {
		return err
	}
	return c.from.with(cmd, func(ctx context.Context, recs client.Records) error {
		var found []*T
		left := 0
		err := k.search(ctx, cmd, recs, q, func(of *T) {
			if err := act.check(of); err != nil {
				left++
				warner(cmd)(fmt.Errorf("%s stays %s: %w", k.id(of), state, err))
				return
			}
			found = append(found, of)
		})
		if err != nil {
			return err
		}
		goOn := false
		if len(found) > 0 {
			goOn, err = c.ask(cmd, fmt.Sprintf("%s %d %ss", act.name, len(found), noun), act.means, func(w io.Writer) error { return k.list(w, found) })
			if err != nil {
				return err
			}
		}
		done, err := c.each(ctx, cmd, recs, found, goOn, k, act)
		if err != nil {
			return err
		}
		if goOn {
			left += len(found) - done
		}
		if !c.asJSON {
			text := fmt.Sprintf("%d %ss are changed.", done, noun)
			if !goOn && len(found) > 0 {
				text = fmt.Sprintf("Nothing was changed: %d %ss would be.", len(found), noun)
			}
			fmt.Fprintln(cmd.OutOrStdout(), text)
		}
		if left > 0 {
			return illegal("%d %ss could not be changed", left, noun)
		}
		return nil
	})
}

// each changes the things, or only prints them, and returns how many it has changed.
func (c *change[T]) each(ctx context.Context, cmd *cobra.Command, recs client.Records, found []*T, goOn bool, k kind[T], act action[T]) (done int, err error) {
	bar := newProgress(c.from, cmd.ErrOrStderr(), len(found))
	defer bar.clear()
	for i, of := range found {
		var after *semel.Record
		if goOn {
			if after, err = act.do(ctx, recs, of); err != nil {
				bar.clear()
				warner(cmd)(fmt.Errorf("%s: %w", k.id(of), err))
				continue
			}
			done++
			bar.done(i + 1)
		}
		if c.asJSON {
			bar.clear()
			if err := newEncoder(cmd.OutOrStdout()).Encode(k.line(changeHead{act.name, goOn, c.reason}, of, after)); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

// check refuses a change without a reason, or that can't be confirmed because nobody is
// at the terminal.
func (c *change[T]) check(cmd *cobra.Command, thing string) error {
	if strings.TrimSpace(c.reason) == "" || !utf8.ValidString(c.reason) {
		return usage("--reason is needed: why should the %s be changed?", thing)
	}
	if !c.yes && !c.dryRun && !c.from.terminal(cmd.InOrStdin()) {
		return usage("nobody can be asked whether to go on: add --yes, or --dry-run to see what would happen")
	}
	return nil
}

// ask shows the thing and what the action means for it, and reports whether to continue,
// which a dry run doesn't. It returns an error if the person said no.
func (c *change[T]) ask(cmd *cobra.Command, action, means string, show func(w io.Writer) error) (goOn bool, err error) {
	if !c.yes || c.dryRun {
		talk := cmd.ErrOrStderr()
		if err := show(talk); err != nil {
			return false, err
		}
		fmt.Fprintf(talk, "\n%s: %s\n", action, means)
		if at := c.from.source.service; at != "" {
			fmt.Fprintf(talk, "This is the service at %s.\n", at)
		}
	}
	if c.dryRun || c.yes {
		return !c.dryRun, nil
	}
	fmt.Fprint(cmd.ErrOrStderr(), "Go on? Type yes: ")
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if strings.TrimSpace(answer) != "yes" {
		fmt.Fprintln(cmd.ErrOrStderr(), "Nothing was changed.")
		return false, errReported
	}
	return true, nil
}
