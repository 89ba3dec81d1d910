// Command pair is the load of package against: begin and complete through an engine. For each
// line that it reads it takes a turn and prints a result. It uses only what every version of
// Semel has had, because it is also built in the tree of another version.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
	"github.com/semelhq/semel/store/pgstore"
	"github.com/semelhq/semel/store/redisstore"
)

var (
	kind     = flag.String("store", "memory", "memory, pebble, postgres or redis")
	at       = flag.String("at", "", "directory or `URL` of the store")
	name     = flag.String("name", "against", "schema in PostgreSQL, prefix of keys in Redis")
	callers  = flag.Int("callers", 1, "callers at once")
	hot      = flag.Int("hot", 0, "keys that all callers repeat; 0: each call has a new one")
	duration = flag.Duration("duration", time.Second, "how long a turn takes")
	profile  = flag.String("cpuprofile", "", "`file` for a profile of all turns")
)

// result is what a turn prints, as JSON.
type result struct {
	Ops    int64   `json:"ops"`     // pairs of begin and complete, or deliveries of hot keys
	PerSec float64 `json:"per_sec"` // operations
	CPU    float64 `json:"cpu_us"`  // microseconds of processor time of this process for each
	Allocs float64 `json:"allocs"`  // for each
	Bytes  float64 `json:"bytes"`   // allocated for each
}

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "pair:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	e, closeStore, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	l := load{engine: e, run: time.Now().UnixNano()}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		res, err := l.turn(ctx)
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(res)
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

// turn measures one turn.
func (l *load) turn(ctx context.Context) (res result, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	l.ops.Store(0)
	cpu, start := processorTime(), time.Now()
	if err := l.during(ctx, *duration); err != nil {
		return res, err
	}
	took, used := time.Since(start), processorTime()-cpu
	runtime.ReadMemStats(&after)
	n := float64(l.ops.Load())
	return result{
		Ops: l.ops.Load(), PerSec: n / took.Seconds(), CPU: float64(used.Microseconds()) / n,
		Allocs: float64(after.Mallocs-before.Mallocs) / n, Bytes: float64(after.TotalAlloc-before.TotalAlloc) / n,
	}, nil
}

// open makes an engine on the store that the flags name.
func open(ctx context.Context) (*semel.Engine, func() error, error) {
	opts := &semel.Options{Operations: []semel.Operation{{Name: "payments.charge"}}}
	switch *kind {
	case "memory":
		e, err := semel.New(memstore.New(), opts)
		return e, func() error { return nil }, err
	case "pebble":
		s, err := pebblestore.Open(*at, nil)
		if err != nil {
			return nil, nil, err
		}
		e, err := semel.New(s, opts)
		return e, s.Close, err
	case "postgres":
		s, err := pgstore.Open(ctx, *at, &pgstore.Options{Schema: *name, Migrate: true, AcquireTimeout: semel.DefaultStoreTimeout})
		if err != nil {
			return nil, nil, err
		}
		e, err := semel.New(s, opts)
		return e, s.Close, err
	case "redis":
		s, err := redisstore.Open(ctx, *at, &redisstore.Options{Prefix: *name})
		if err != nil {
			return nil, nil, err
		}
		e, err := semel.New(s, opts)
		return e, s.Close, err
	}
	return nil, nil, fmt.Errorf("there is no store %q", *kind)
}

// load is what the callers share.
type load struct {
	engine *semel.Engine
	run    int64 // in every key, so that runs on one store don't meet
	ops    atomic.Int64
	next   atomic.Int64
}

// during has all callers work for so long.
func (l *load) during(ctx context.Context, d time.Duration) error {
	var wg sync.WaitGroup
	failures := make(chan error, *callers)
	end := time.Now().Add(d)
	data := answer()
	for range *callers {
		wg.Go(func() {
			for time.Now().Before(end) {
				if err := l.deliver(ctx, data); err != nil {
					failures <- err
					return
				}
				l.ops.Add(1)
			}
		})
	}
	wg.Wait()
	close(failures)
	return <-failures
}

// deliver begins a call, and completes it if it executes.
func (l *load) deliver(ctx context.Context, data []byte) error {
	n := l.next.Add(1)
	if *hot > 0 {
		n %= int64(*hot)
	}
	ans, err := l.engine.Begin(ctx, semel.Call{
		Tenant: "tenant", Principal: "principal", Operation: "payments.charge",
		Key:         "key-" + strconv.FormatInt(l.run, 36) + "-" + strconv.FormatInt(n, 10),
		Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte("payload")),
	})
	switch {
	case err != nil:
		return err
	case ans.Decision == semel.Execute:
		return ans.Attempt.Complete(ctx, semel.Result{Data: data})
	case *hot == 0:
		return fmt.Errorf("a new key gets %q", ans.Decision)
	}
	return nil
}

// answer is 1 KiB, which compresses to about half, as answers do.
func answer() []byte {
	raw := make([]byte, 512)
	rand.NewChaCha8([32]byte{}).Read(raw)
	return hex.AppendEncode(nil, raw)
}

// processorTime is what this process has used so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it can't fail for the own process
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
