// Package benchproxy measures how many requests go through Semel as a reverse proxy with
// the embedded store, compared with a bare [httputil.ReverseProxy] to the same upstream.
package benchproxy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/semelhq/semel/bench/internal/benchstore"
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

// turns are the options of two loads that take turns.
func (o *Options) turns(d time.Duration, rounds int) benchstore.Options {
	return benchstore.Options{Callers: o.Connections, Duration: d, Rounds: rounds, Progress: o.Progress}
}

// Report is the result; go run ./bench proxy --json prints it.
type Report struct {
	Connections int    `json:"connections"`
	BodyBytes   int    `json:"body_bytes"`
	AnswerBytes int    `json:"answer_bytes"`
	CPUs        int    `json:"cpus"`
	Go          string `json:"go"`
	// Ours is the proxy in the mode enforce, with a new key for every request. Bare is only
	// a [httputil.ReverseProxy].
	benchstore.Comparison
	// API is begin and complete of new keys over the execution API, on the same
	// store, by as many callers.
	API *benchstore.Measure `json:"api,omitempty"`
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
	var bare benchstore.Op
	if opts.Compare {
		l, err := newLoad(rig.bare.Addr(), opts)
		if err != nil {
			return report, err
		}
		defer l.close()
		bare = l.request
	}
	report.Comparison, err = benchstore.Alternate(ctx, opts.turns(opts.Duration, opts.Rounds), "bare reverse proxy", semel.request, bare)
	if err != nil {
		return report, err
	}
	report.API, err = rig.measureAPI(ctx, opts)
	return report, err
}
