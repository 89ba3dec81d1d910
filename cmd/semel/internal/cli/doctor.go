package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/internal/service/config"
)

// doctorFinding is the result of one check.
type doctorFinding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warning (works, but somebody should look) or failed
	Detail string `json:"detail"`
	// Next is a command to type, or empty.
	Next string `json:"next,omitempty"`
}

// doctorReport is healthy if nothing failed, even with warnings.
type doctorReport struct {
	Healthy  bool            `json:"healthy"`
	Warnings int             `json:"warnings"`
	Failed   int             `json:"failed"`
	Findings []doctorFinding `json:"findings"`
	where    string          // the flags that lead other commands to the same place, after a space
	stored   string          // those that commands on a store have, too
}

func newDoctor() *cobra.Command {
	var src recordSource
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check an installation, and say what to do next",
		Long: `Check an installation, and say what to do next: each check prints a line with ok, warning
or failed, and a command to type if you should do something. It changes nothing.

With --url, --context, SEMEL_URL or a current context it checks a running service: whether
it answers, who may do what, its own checks (GET /readyz?verbose), and how many calls are
held. Otherwise it checks the configuration, as 'semel config validate' does: --config
FILE, or the default of a service without a file. Then it checks the service that runs with
that configuration. If there is none, it opens the store for reading and checks whether it
works, its level of durability, as in 'semel store status', its clock, its disk, and the
newest checkpoint of the evidence log.

The exit code is 1 if a check failed, 5 if something other than Semel answers at the
address, and 0 otherwise, even with warnings.

The JSON has healthy, warnings and failed (numbers), and findings: a list with check,
status, detail and next.`,
		Example: `  semel doctor
  semel doctor --config semel.yaml
  semel doctor --context prod --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			ctx, stop := patient(ctx, cmd.ErrOrStderr(), isTerminal(cmd.ErrOrStderr()))
			defer stop()
			r := doctorReport{Findings: []doctorFinding{}, where: src.flags(), stored: (&recordSource{store: src.store, config: src.config}).flags()}
			if err := r.examine(ctx, cmd, &src); err != nil {
				return err
			}
			r.Healthy = r.Failed == 0
			return printReport(cmd, &r, r.print, !r.Healthy)
		},
	}
	flags := cmd.Flags()
	src.add(flags)
	flags.DurationVar(&timeout, "timeout", time.Minute, "how long all checks may take")
	return jsonFlag(cmd)
}

// add adds a finding. If it isn't ok, next is the command to type.
func (r *doctorReport) add(check, status, detail, next string) {
	switch status {
	case "ok":
		next = ""
	case "warning":
		r.Warnings++
	case "failed":
		r.Failed++
	}
	r.Findings = append(r.Findings, doctorFinding{check, status, strings.TrimPrefix(cmp.Or(detail, "nothing to report"), "semel: "), next})
}

// print writes the report for people, each finding on a line.
func (r *doctorReport) print(out io.Writer) error {
	w := newTable(out)
	line := strings.NewReplacer("\n", " ", "\t", " ")
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Status, f.Check, printable(line.Replace(f.Detail)))
		if f.Next != "" {
			fmt.Fprintf(w, "\t\tnext: %s\n", printable(f.Next))
		}
	}
	fmt.Fprintf(w, "\n%d ok, %d warnings, %d failed\n", len(r.Findings)-r.Warnings-r.Failed, r.Warnings, r.Failed)
	return w.Flush()
}

// examine checks a service, or a configuration and the service or the store behind it.
func (r *doctorReport) examine(ctx context.Context, cmd *cobra.Command, src *recordSource) error {
	at, tokenFile, err := src.where()
	if err != nil {
		return err
	}
	if at != "" {
		service, err := asked(at, tokenFile)
		if err == nil {
			err = r.service(ctx, service)
		}
		return err
	}
	cfg, origins, err := loadConfig(cmd, src.config, src.store)
	if _, wrong := errors.AsType[config.Errors](err); err != nil && !wrong {
		return err
	}
	if !r.config(cfg, origins, err, src.config) {
		return nil
	}
	if at, err = src.nearby(cmd); err != nil {
		return err
	}
	service, err := asked(at, src.tokenFile)
	if err != nil {
		return err
	}
	near, cancel := context.WithTimeout(ctx, 3*time.Second) // it is on this machine
	defer cancel()
	if _, err := service.Ready(near); err == nil {
		return r.service(ctx, service)
	}
	r.store(ctx, cfg)
	return nil
}
