package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/semelhq/semel"
)

// workerCommand is the first argument of a worker, which is this program again. The
// URL and the schema follow.
const workerCommand = "worker"

// orderWait is how long a duplicate waits for the delivery that makes the order.
const orderWait = 5 * time.Second

// reply is a worker's answer to a delivery, in a line of JSON.
type reply struct {
	Delivery int64          `json:"delivery"`
	Decision semel.Decision `json:"decision"`
	Receipt  receipt        `json:"receipt"`
	Error    string         `json:"error,omitempty"`
}

// delivery is a delivery for a worker, in a line of JSON.
type delivery struct {
	Delivery int64 `json:"delivery"`
	Order    order `json:"order"`
}

// work serves deliveries from in, concurrently, until it ends.
func work(ctx context.Context, url, schema string, in io.Reader, out io.Writer) error {
	s, err := openShop(ctx, url, schema, false)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	var mu sync.Mutex
	enc := json.NewEncoder(out)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var d delivery
		if err = json.Unmarshal(lines.Bytes(), &d); err != nil {
			break
		}
		running.Go(func() {
			r := reply{Delivery: d.Delivery}
			made, ans, err := s.create(ctx, d.Order)
			r.Decision, r.Receipt = ans.Decision, made
			if err != nil {
				r.Error = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			_ = enc.Encode(r) // the reader may be gone
		})
	}
	running.Wait()
	return errors.Join(err, lines.Err(), s.close(ctx))
}
