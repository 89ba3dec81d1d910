package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/semelhq/semel/transport/safehttp"
)

// copies is how often each payment is requested.
const copies = 5

// answer is what the client reads of an answer.
type answer struct {
	Result struct {
		ChargeID string `json:"charge_id"`
	} `json:"result"`
	Errors []struct {
		Code string `json:"code"`
	} `json:"errors"`
	Extensions []struct {
		URN  string `json:"urn"`
		Data struct {
			Status string `json:"status"`
		} `json:"data"`
	} `json:"extensions"`
}

// client sends requests. The keys are in the body, where no transport sees them, so none
// repeats a request by itself.
type client struct {
	url  string
	http *http.Client
}

// charge requests a payment: another id for each attempt, one key for all of them.
func (c *client) charge(ctx context.Context, order string, attempt, amount int) (answer, error) {
	request := fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"req_%s_%d",`+
		`"call":{"function":"payments.charge","version":"1.0.0","arguments":{"order":%q,"amount":%d}},`+
		`"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"charge_%s"}}]}`, order, attempt, order, amount, order)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader([]byte(request)))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	var a answer
	if err == nil {
		err = json.Unmarshal(body, &a)
	}
	return a, err
}

// settle requests a payment until there is an answer that is no refusal for now, as a
// client with the retry extension does.
func (c *client) settle(ctx context.Context, order string, attempt int) (answer, error) {
	for ; ; attempt += copies {
		a, err := c.charge(ctx, order, attempt, 100)
		if err != nil || len(a.Errors) == 0 || a.Errors[0].Code != "IDEMPOTENCY_PROCESSING" {
			return a, err
		}
		select {
		case <-time.After(10 * time.Millisecond): // it is this machine's own service
		case <-ctx.Done():
			return a, ctx.Err()
		}
	}
}

// play requests every payment several times, in a random order and at once. Every third
// client hangs up before it has an answer. Then it counts.
func play(ctx context.Context, out io.Writer, url string, payments int, b *bank) error {
	c := &client{url: url, http: &http.Client{Transport: &safehttp.Transport{Base: safehttp.Direct(nil)}}}
	var mu sync.Mutex
	charges, statuses, wrong := map[string]string{}, map[string]int{}, 0
	note := func(order string, a answer, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil || len(a.Errors) > 0 || len(a.Extensions) == 0 || charges[order] != "" && charges[order] != a.Result.ChargeID {
			wrong++
			return
		}
		charges[order] = a.Result.ChargeID
		statuses[a.Extensions[0].Data.Status]++
	}
	work := make(chan int)
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for n := range work {
				order := fmt.Sprintf("order%d", n/copies)
				if n%3 == 0 {
					hasty, hangUp := context.WithTimeout(ctx, time.Duration(rand.IntN(2000))*time.Microsecond)
					_, _ = c.charge(hasty, order, n%copies, 100) // whatever it was
					hangUp()
				}
				a, err := c.settle(ctx, order, n%copies)
				note(order, a, err)
			}
		})
	}
	for _, n := range rand.Perm(payments * copies) {
		work <- n
	}
	close(work)
	workers.Wait()
	conflict, err := c.charge(ctx, "order0", 0, 999)
	if err != nil {
		return err
	}
	orders, charged := b.count()
	fmt.Fprintf(out, "payments  %d, each requested %d times and more\n", payments, copies)
	fmt.Fprintf(out, "charged   %d orders by %d charges\n", orders, charged)
	fmt.Fprintf(out, "answered  %d times, all of a payment with the same charge\n", statuses["processed"]+statuses["cached"])
	fmt.Fprintf(out, "wrong     %d answers\n", wrong)
	if len(conflict.Errors) > 0 {
		fmt.Fprintf(out, "order0 for another amount: %s\n", conflict.Errors[0].Code)
	}
	if orders != payments || charged != payments || wrong > 0 || statuses["processed"]+statuses["cached"] != payments*copies {
		return errors.New("a count is wrong")
	}
	return nil
}
