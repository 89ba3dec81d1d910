// Command activitypub-inbox tracks reports that another server of the fediverse sends, each
// activity several times and in any order. Its README says more.
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "activitypub-inbox:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// summary is what the example prints.
type summary struct {
	Reports    int `json:"reports"`    // that are offered and then accepted
	Activities int `json:"activities"` // two for each report
	Deliveries int `json:"deliveries"` // of the activities
	Restarts   int `json:"restarts"`   // of the inbox, in the middle
	HungUp     int `json:"hung_up"`    // deliveries whose sender didn't wait for the answer
	Created    int `json:"created"`    // reports in the tracker
	Validated  int `json:"validated"`  // of them
	Twice      int `json:"twice"`      // reports that were created or validated more than once
	Again      int `json:"again"`      // times that a handler found its work done
	Refused    int `json:"refused"`    // deliveries with a forged signature
	Conflicts  int `json:"conflicts"`  // deliveries of another activity under a used id
}

// right reports whether the numbers are as they must be.
func (s *summary) right() bool {
	return s.Created == s.Reports && s.Validated == s.Reports && s.Twice == 0 && s.Again > 0 && s.Refused == 1 && s.Conflicts == 1
}

// run is the program. It reports whether every report was created and validated once.
func run(ctx context.Context, args []string, out io.Writer) (bool, error) {
	flags := flag.NewFlagSet("activitypub-inbox", flag.ContinueOnError)
	reports := flags.Int("reports", 50, "reports that are sent")
	copies := flags.Int("copies", 4, "deliveries of each activity")
	asJSON := flags.Bool("json", false, "print the numbers as JSON")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if *reports < 3 || *copies < 1 {
		return false, errors.New("at least 3 reports and 1 copy")
	}
	dir, err := os.MkdirTemp("", "activitypub-inbox-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)

	t := &tracker{reports: map[string]*report{}}
	s, err := play(ctx, dir, t, *reports, *copies)
	if err != nil {
		return false, err
	}
	t.count(s)
	if *asJSON {
		return s.right(), json.NewEncoder(out).Encode(s)
	}
	fmt.Fprintf(out, `%d reports, %d deliveries of their %d activities, %d restart, %d senders hung up
%d reports created, %d validated, %d of them twice
%d times a handler found its work done
%d delivery refused that was forged, %d not handled that changed an activity
`, s.Reports, s.Deliveries, s.Activities, s.Restarts, s.HungUp, s.Created, s.Validated, s.Twice, s.Again, s.Refused, s.Conflicts)
	return s.right(), nil
}
