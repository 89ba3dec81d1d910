// Command whatsapp-refunds pays refunds that customers ask for in WhatsApp messages.
// Every message is delivered several times at once, the node is killed again and
// again, and each refund is paid once. Afterwards the evidence of it is audited.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	refunds int
	copies  int
	kills   int
	json    bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 2 && os.Args[1] == nodeCommand {
		if err := runNode(ctx, os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ok, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
	}
	if !ok {
		os.Exit(1)
	}
}

// summary is what the example prints.
type summary struct {
	Refunds int `json:"refunds"`
	// Messages were written and Pressed buttons among them. Deliveries are those of
	// WhatsApp; Again were not answered with 200, mostly because the node was dead.
	Messages   int `json:"messages"`
	Pressed    int `json:"buttons_pressed"`
	Deliveries int `json:"deliveries"`
	Again      int `json:"delivered_again"`
	Kills      int `json:"kills"`
	// Paid counts refunds by the payment service's own count, Twice the orders that it
	// paid more than once, and Wrong those with another amount. Known are requests that
	// it recognised by their key.
	Paid     int `json:"paid"`
	Twice    int `json:"paid_twice"`
	Wrong    int `json:"wrong_amounts"`
	Requests int `json:"requests"`
	Known    int `json:"requests_known_by_key"`
	// Answered are the orders whose buyers got a reply about the refund, Differing those
	// whose buyers got different replies.
	Answered  int `json:"answered"`
	Differing int `json:"differing_answers"`
	// Conflicts are messages that came again with different content. Forged are
	// deliveries with a wrong signature or none, Admitted those of them that were
	// accepted.
	Conflicts int     `json:"conflicts"`
	Forged    int     `json:"forged"`
	Admitted  int     `json:"forged_and_taken"`
	Audit     audit   `json:"audit"`
	Seconds   float64 `json:"seconds"`
}

// faults says which counts are wrong.
func (s *summary) faults(o *options) (faults []string) {
	off := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	a := &s.Audit
	off(s.Paid != s.Refunds, "%d payments for %d refunds", s.Paid, s.Refunds)
	off(s.Twice > 0, "%d refunds were paid more than once", s.Twice)
	off(s.Wrong > 0, "%d refunds have another amount", s.Wrong)
	off(s.Requests-s.Known != s.Paid, "%d requests, of which %d were known, made %d payments", s.Requests, s.Known, s.Paid)
	off(s.Answered != s.Refunds, "%d buyers of %d were told", s.Answered, s.Refunds)
	off(s.Differing > 0, "%d buyers were told different things", s.Differing)
	off(s.Admitted > 0, "%d forged deliveries were taken", s.Admitted)
	off(s.Deliveries < 3*s.Messages, "%d deliveries of %d messages", s.Deliveries, s.Messages)
	off(s.Kills != o.kills, "%d kills instead of %d", s.Kills, o.kills)
	off(!a.Intact, "the evidence does not verify: %s", a.Finding)
	off(a.Executed != s.Refunds || a.Repeated > 0, "the evidence has %d executions for %d refunds, %d of them repeated", a.Executed, s.Refunds, a.Repeated)
	off(a.FirstSeen != s.Refunds, "the evidence has %d refunds as first seen", a.FirstSeen)
	off(a.Confirmed != s.Refunds, "the evidence has %d confirmations for %d refunds", a.Confirmed, s.Refunds)
	off(a.Conflicts < s.Conflicts, "the evidence has %d conflicts of %d", a.Conflicts, s.Conflicts)
	off(a.Duplicates == 0, "the evidence has no duplicate")
	off(a.Intact && !a.Found, "the changed entry %d was not named: %q", a.Changed, a.Finding)
	return faults
}

func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	var o options
	flags := flag.NewFlagSet("whatsapp-refunds", flag.ContinueOnError)
	flags.IntVar(&o.refunds, "refunds", 200, "how many refunds")
	flags.IntVar(&o.copies, "copies", 10, "how often a message is delivered at most; 3 is the least")
	flags.IntVar(&o.kills, "kills", 12, "how often the node is killed")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	if err := flags.Parse(args); err != nil {
		return errors.Is(err, flag.ErrHelp), err
	}
	if o.refunds < 1 || o.copies < 3 || o.kills < 0 || o.kills > o.refunds/2 {
		return false, errors.New("whatsapp-refunds: there is a refund at least, 3 copies, and a kill for each second refund at most")
	}
	start := time.Now()
	s, err := play(ctx, &o)
	if err != nil {
		return false, err
	}
	s.Seconds = time.Since(start).Seconds()
	if o.json {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		err = enc.Encode(s)
	} else {
		err = s.print(out)
	}
	faults := s.faults(&o)
	for _, fault := range faults {
		fmt.Fprintln(os.Stderr, "off:", fault)
	}
	return err == nil && len(faults) == 0, err
}

func (s *summary) print(out io.Writer) error {
	a := &s.Audit
	_, err := fmt.Fprintf(out, `%d refunds asked for in %d messages, %d of them buttons that confirm
%d deliveries of those, %d not answered with 200; the node was killed %d times
%d refunds paid by the payment service's own count, %d of them twice, %d with another amount
%d requests to it, %d of which it knew by their key
%d buyers told, %d of them different things
%d messages came again with another content; %d deliveries were forged, %d of those taken
evidence: %d entries verified with the public key alone: %t
evidence: %d refunds first seen, %d confirmed, %d executed, %d executed twice
evidence: %d duplicates of messages, %d replays of refunds, %d conflicts
evidence: one bit of entry %d was changed, and found there: %t
in %.1f s
`, s.Refunds, s.Messages, s.Pressed, s.Deliveries, s.Again, s.Kills, s.Paid, s.Twice, s.Wrong, s.Requests, s.Known,
		s.Answered, s.Differing, s.Conflicts, s.Forged, s.Admitted, a.Entries, a.Intact,
		a.FirstSeen, a.Confirmed, a.Executed, a.Repeated, a.Duplicates, a.Replayed, a.Conflicts, a.Changed, a.Found, s.Seconds)
	return err
}
