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
)

// change is the common part of commands that change a T for good, or with --all many of them:
// they need a reason, and ask first.
type change[T any] struct {
	from             *recordsFrom
	reason           string
	yes, dryRun, all bool
}

// kind is one kind of things that commands change: records, or messages.
type kind[T any] interface {
	// words name a thing, and the state that --all selects.
	words() (noun, state string)
	// finder reads the command line. The function it returns finds the thing that is named
	// there, or with --all everything in that state that the qualifiers select.
	finder(cmd *cobra.Command, args []string, all bool) (func(ctx context.Context, recs client.Records) ([]*T, error), error)
	// id names the thing in a warning.
	id(*T) string
	// show prints one thing, list several in rows.
	show(io.Writer, *T) error
	list(io.Writer, []*T) error
	// line returns the JSON of a change. after is nil if no record is left, or for a dry run.
	line(head changeHead, of *T, after *semel.Record) any
	// done is a sentence about the thing after the change.
	done(action string, after *semel.Record) string
}

// action is a change that a command makes.
type action[T any] struct {
	name, means string
	// check refuses what the store would refuse.
	check func(*T) error
	// do returns the stored record, if there still is one.
	do func(ctx context.Context, recs client.Records, of *T) (*semel.Record, error)
}

// changeHead is the common part of what --json prints of a change.
type changeHead struct {
	// Action is "settle", "release", "confirm", "purge", "replay" or "discard".
	Action string `json:"action"`
	// Done is false for a dry run.
	Done   bool   `json:"done"`
	Reason string `json:"reason"`
}

// flags adds the flags. all describes --all; without it there is no such flag.
func (c *change[T]) flags(cmd *cobra.Command, all string) {
	flags := cmd.Flags()
	flags.StringVar(&c.reason, "reason", "", "why, for whoever reads the log or the message later")
	flags.BoolVar(&c.yes, "yes", false, "skip the question")
	flags.BoolVar(&c.dryRun, "dry-run", false, "only show what would happen")
	if all != "" {
		flags.BoolVar(&c.all, "all", false, all)
		cmd.ValidArgsFunction = completeQualifiers
	}
	jsonFlag(cmd)
}

// apply finds the thing that is named, or with --all many, shows it, asks once, and changes one
// after the other. With --all, one that can't be changed (an effect is open, or somebody else
// was faster) is a warning, and the rest go on. So is a lost answer, but the end tells it apart.
// After a crash, the same command finds the rest.
func (c *change[T]) apply(cmd *cobra.Command, args []string, k kind[T], act action[T]) error {
	find, err := k.finder(cmd, args, c.all)
	noun, state := k.words()
	if err == nil {
		err = c.check(cmd, noun)
	}
	if err != nil {
		return err
	}
	return c.from.with(cmd, func(ctx context.Context, recs client.Records) error {
		all, err := find(ctx, recs)
		if err != nil {
			return err
		}
		var found []*T
		for _, of := range all {
			switch err := act.check(of); {
			case err == nil:
				found = append(found, of)
			case !c.all:
				return err
			default:
				warner(cmd)(fmt.Errorf("%s stays %s: %w", k.id(of), state, err))
			}
		}
		goOn, err := c.ask(cmd, k, act, found)
		if err != nil {
			return err
		}
		done, lost, err := c.each(ctx, cmd, recs, found, goOn, k, act)
		if !c.all {
			return err
		}
		if err == nil && !asJSON(cmd) {
			text := fmt.Sprintf("%d %ss are changed.", done, noun)
			if !goOn && len(found) > 0 {
				text = fmt.Sprintf("Nothing was changed: %d %ss would be.", len(found), noun)
			}
			fmt.Fprintln(cmd.OutOrStdout(), text)
		}
		if !goOn {
			done = len(found)
		}
		return endOfAll(ctx, noun, len(all)-done, lost, err)
	})
}

// endOfAll is the error of --all, after each ended with err. left things aren't known to be
// changed; lost of them may be, so their end is not that of a refusal.
func endOfAll(ctx context.Context, noun string, left, lost int, err error) error {
	switch {
	case lost == 0 && err == nil && left > 0:
		return illegal("%d %ss could not be changed", left, noun)
	case lost == 0:
		return err
	}
	e := &semel.Error{Code: semel.CodeUnknown, Message: fmt.Sprintf("nobody knows whether %d %ss were changed: look with 'semel why' before you do it again", lost, noun)}
	switch {
	case ctx.Err() != nil:
		e.Message = "interrupted, and " + e.Message // without err, of which nothing more is said
	case err != nil:
		e.Err = err
	case left > lost:
		e.Message += fmt.Sprintf("; %d could not be changed", left-lost)
	}
	return e
}

// each changes the things, or for a dry run only prints them. It returns how many it changed, and
// how many it may have changed without an answer that says so.
func (c *change[T]) each(ctx context.Context, cmd *cobra.Command, recs client.Records, found []*T, goOn bool, k kind[T], act action[T]) (done, lost int, err error) {
	out := cmd.OutOrStdout()
	enc := newEncoder(out)
	if !c.all {
		enc.SetIndent("", "  ")
	}
	for i, of := range found {
		if err := ctx.Err(); err != nil {
			return done, lost, err
		}
		var after *semel.Record
		sentence := "Nothing was changed: this was a dry run."
		if goOn {
			after, err = act.do(ctx, recs, of)
			switch {
			case err != nil && !c.all:
				return done, lost, err
			case err != nil:
				warner(cmd)(fmt.Errorf("%s: %w", k.id(of), err))
				if exitOf(err) == ExitUnavailable {
					lost++
				}
				continue
			}
			done++
			sentence = k.done(act.name, after)
		}
		switch {
		case asJSON(cmd):
			err = enc.Encode(k.line(changeHead{act.name, goOn, c.reason}, of, after))
		case !c.all:
			_, err = fmt.Fprintln(out, sentence)
		case goOn && (i+1)%100 == 0:
			fmt.Fprintf(cmd.ErrOrStderr(), "semel: %d of %d\n", i+1, len(found))
		}
		if err != nil {
			return done, lost, err
		}
	}
	return done, lost, nil
}

// check refuses a change without a reason, or one that nobody is there to confirm.
func (c *change[T]) check(cmd *cobra.Command, noun string) error {
	if strings.TrimSpace(c.reason) == "" || !utf8.ValidString(c.reason) {
		return usage("--reason is needed: say why the %s should be changed", noun)
	}
	if !c.yes && !c.dryRun && !c.from.terminal(cmd.InOrStdin()) {
		return usage("nobody is at the terminal to confirm this: add --yes, or --dry-run to see what would happen")
	}
	return nil
}

// ask shows the found things and the meaning of the action, and reports whether to go on, which a
// dry run doesn't. If the person says no, it returns an error.
func (c *change[T]) ask(cmd *cobra.Command, k kind[T], act action[T], found []*T) (goOn bool, err error) {
	if len(found) == 0 {
		return false, nil
	}
	talk, title := cmd.ErrOrStderr(), act.name
	if !c.yes || c.dryRun {
		if c.all {
			noun, _ := k.words()
			title = fmt.Sprintf("%s %d %ss", act.name, len(found), noun)
			err = k.list(talk, found)
		} else {
			err = k.show(talk, found[0])
		}
		if err != nil {
			return false, err
		}
		fmt.Fprintf(talk, "\n%s: %s\n", title, act.means)
		if at := c.from.source.service; at != "" {
			fmt.Fprintf(talk, "This is the service at %s.\n", at)
		}
	}
	if c.dryRun || c.yes {
		return !c.dryRun, nil
	}
	fmt.Fprint(talk, "Go on? Type yes: ")
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if strings.TrimSpace(answer) != "yes" {
		fmt.Fprintln(talk, "Nothing was changed.")
		return false, errReported
	}
	return true, nil
}
