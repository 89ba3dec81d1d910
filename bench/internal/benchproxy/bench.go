// Package benchproxy measures how many requests go through Semel as a reverse proxy with
// the embedded store, compared with a bare [httputil.ReverseProxy] to the same upstream.
package benchproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/semelhq/semel/bench/internal/turns"
)

// Options says what to measure. Every field is required unless it says otherwise.
type Options struct {
	// Compare makes a bare reverse proxy take turns with Semel.
	Compare bool
	// Duration is how long to measure each of them.
	Duration time.Duration
	// Connections is how many clients send at the same time, each on a
	// connection of its own, one request after the other.
	Connections int
	// Rounds is how many turns each takes.
	Rounds int
	// BodyBytes and AnswerBytes are the sizes of the bodies.
	BodyBytes   int
	AnswerBytes int
	// Dir is where the store is made, in a subdirectory that is removed at the end.
	// Defaults to the directory for temporary files.
	Dir string
	// Progress is called with what is being done.
	Progress func(format string, args ...any)
}

// Report is the result; go run ./bench proxy --json prints it.
type Report struct {
	Connections int    `json:"connections"`
	BodyBytes   int    `json:"body_bytes"`
	AnswerBytes int    `json:"answer_bytes"`
	CPUs        int    `json:"cpus"`
	Go          string `json:"go"`
	// Semel is the proxy in the mode enforce, with a new key for every request.
	Semel Side `json:"semel"`
	// Bare is only a [httputil.ReverseProxy]. Ratio is the median over the rounds of
	// semel/bare in requests per second, and RatioOfTotals that of all rounds together.
	Bare          *Side   `json:"bare,omitempty"`
	Rounds        []Round `json:"rounds,omitempty"`
	Ratio         float64 `json:"ratio,omitempty"`
	RatioOfTotals float64 `json:"ratio_of_totals,omitempty"`
	// API is begin and complete of new keys over the execution API, on the same
	// store, by as many callers.
	API APISide `json:"api"`
}

// APISide has the measurements of the execution API.
type APISide struct {
	Pairs          int     `json:"pairs"`
	Seconds        float64 `json:"seconds"`
	PairsPerSecond float64 `json:"pairs_per_second"`
}

// Side has the measurements of one proxy.
type Side struct {
	Requests          int     `json:"requests"`
	Seconds           float64 `json:"seconds"`
	RequestsPerSecond float64 `json:"requests_per_second"`
	// P50, P99 and Max are how long single requests took, in microseconds.
	P50 int64 `json:"p50_us"`
	P99 int64 `json:"p99_us"`
	Max int64 `json:"max_us"`
	// Errors counts requests that failed. FirstError is one of them.
	Errors     int    `json:"errors"`
	FirstError string `json:"first_error,omitempty"`
}

// Round is one turn of each, in requests per second.
type Round struct {
	Semel float64 `json:"semel"`
	Bare  float64 `json:"bare"`
	Ratio float64 `json:"ratio"`
}

// Validate reports all errors in the options, in the words of the flags.
func (o Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Duration <= 0 {
		bad("--duration must be above zero")
	}
	if o.Connections < 1 || o.Connections > 10_000 {
		bad("--connections is %d, not 1 to 10000", o.Connections)
	}
	if o.Rounds < 1 {
		bad("--rounds must be above zero")
	}
	if o.BodyBytes < 2 || o.BodyBytes > 1<<20 {
		bad("--body-bytes is %d, not 2 to %d", o.BodyBytes, 1<<20)
	}
	if o.AnswerBytes < 2 || o.AnswerBytes > 1<<17 {
		bad("--answer-bytes is %d, not 2 to %d", o.AnswerBytes, 1<<17)
	}
	return errors.Join(errs...)
}

// Run measures. Clients, proxies, API and upstream all run in this process, so that both
// proxies share it with the same load. A failed request is an error, but the report has
// the measurements anyway.
func Run(ctx context.Context, opts Options) (report Report, err error) {
	dir, err := os.MkdirTemp(opts.Dir, "semel-bench-proxy-*")
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	rig, err := newRig(dir, opts)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, rig.close()) }()

	report = Report{
		Connections: opts.Connections, BodyBytes: opts.BodyBytes, AnswerBytes: opts.AnswerBytes,
		CPUs: runtime.GOMAXPROCS(0), Go: runtime.Version(),
	}
	semel, err := newLoad(rig.semel.Addr(), opts)
	if err != nil {
		return report, err
	}
	defer semel.close()
	var bare *load
	if opts.Compare {
		if bare, err = newLoad(rig.bare.Addr(), opts); err != nil {
			return report, err
		}
		defer bare.close()
	}
	rounds := alternate(ctx, opts, semel, bare)
	report.Semel = semel.side()
	errs := []error{ctx.Err(), report.Semel.fault("semel")}
	opts.Progress("execution API, %v", opts.Duration/2)
	report.API, err = rig.measureAPI(ctx, opts)
	errs = append(errs, err)
	if bare != nil {
		side := bare.side()
		report.Bare = &side
		for _, r := range rounds {
			report.Rounds = append(report.Rounds, Round{Semel: r.First, Bare: r.Second, Ratio: r.Ratio()})
		}
		report.Ratio = turns.Median(rounds)
		if side.RequestsPerSecond > 0 {
			report.RatioOfTotals = report.Semel.RequestsPerSecond / side.RequestsPerSecond
		}
		errs = append(errs, side.fault("bare"))
	}
	return report, errors.Join(errs...)
}

// alternate makes both take turns, or runs Semel alone if bare is nil. It first gives
// each a short turn, which doesn't count.
func alternate(ctx context.Context, opts Options, semel, bare *load) []turns.Pair {
	turn := opts.Duration / time.Duration(opts.Rounds)
	first := func() float64 { return semel.turn(ctx, turn) }
	second := func() float64 { return 0 }
	semel.turn(ctx, turn/2)
	semel.forget()
	if bare != nil {
		second = func() float64 { return bare.turn(ctx, turn) }
		bare.turn(ctx, turn/2)
		bare.forget()
	}
	return turns.Alternate(ctx, opts.Rounds,
		func(i int) { opts.Progress("round %d of %d, %v each", i, opts.Rounds, turn) }, first, second)
}

func (s *Side) fault(name string) error {
	if s.Errors == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d of %d requests failed, the first with: %s", name, s.Errors, s.Requests+s.Errors, s.FirstError)
}

// Print writes the report as a table.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "%d connections, %d byte requests, %d byte answers, %d CPUs, %s\n\n", r.Connections, r.BodyBytes, r.AnswerBytes, r.CPUs, r.Go)
	fmt.Fprintf(w, "%-24s %12s %10s %10s %10s %8s\n", "", "requests/s", "p50", "p99", "max", "errors")
	row := func(name string, s *Side) {
		fmt.Fprintf(w, "%-24s %12.0f %10s %10s %10s %8d\n", name, s.RequestsPerSecond, micros(s.P50), micros(s.P99), micros(s.Max), s.Errors)
	}
	row("semel, embedded store", &r.Semel)
	if r.Bare != nil {
		row("bare reverse proxy", r.Bare)
		fmt.Fprintf(w, "\nsemel / bare: %.3f (median of %d rounds; %.3f over all)\n", r.Ratio, len(r.Rounds), r.RatioOfTotals)
	}
	fmt.Fprintf(w, "execution API: %.0f begin + complete pairs per second\n", r.API.PairsPerSecond)
}

func micros(us int64) string { return (time.Duration(us) * time.Microsecond).String() }
