package benchstore

import (
	"errors"
	"fmt"
	"time"
)

// Options says what to measure. Every field is required unless it says otherwise.
type Options struct {
	// Dir is where the Pebble store is made; empty for other stores.
	Dir string
	// URL is the URL of PostgreSQL or Redis. If it and Dir are empty, the store is in
	// memory.
	URL string
	// Callers is how many callers work at the same time.
	Callers int
	// ResultBytes is the size of each outcome.
	ResultBytes int
	// Duration is how long to measure each load.
	Duration time.Duration
	// Rounds is how many turns a load and its counterpart take.
	Rounds int
	// Records is how many completed records to fill the store with first, if any. Replays
	// and new calls are then measured.
	Records int
	// Compare also measures the bare loop and, with Records, a store of [SmallRecords].
	// It needs a store that has such a loop.
	Compare bool
	// Against is the URL of the Redis to compare the Pebble store with, instead of bare
	// Pebble.
	Against string
	// Keep leaves the data in place.
	Keep bool
	// Progress is called with what is being done. Optional.
	Progress func(format string, args ...any)
}

func (o *Options) progress(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(format, args...)
	}
}

// Validate reports all errors in the options, in the words of the flags.
func (o *Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Callers < 1 || o.Callers > 100_000 {
		bad("--callers is %d, not 1 to 100000", o.Callers)
	}
	if o.ResultBytes < 0 || o.ResultBytes > 16<<20 {
		bad("--result-bytes is %d, not 0 to %d", o.ResultBytes, 16<<20)
	}
	if o.Duration <= 0 {
		bad("--duration must be above zero")
	}
	if o.Rounds < 1 {
		bad("--rounds must be above zero")
	}
	if o.Records < 0 {
		bad("--records is negative")
	}
	kind := o.kindOf()
	switch {
	case o.Against != "" && kind != kindPebble:
		bad("--compare with a URL needs --store pebble:DIR")
	case o.Against != "" && !isRedis(urlKind(o.Against)):
		bad("--compare takes the URL of a Redis")
	case o.Compare && kind == kindMemory:
		bad("--compare needs another --store than memory: there is nothing bare to compare that with")
	}
	return errors.Join(errs...)
}
