// Command whatsapp-refunds pays refunds that customers ask for in WhatsApp messages, each
// once, however often its messages are delivered. Its README says more.
//
//	go run ./examples/whatsapp-refunds -demo
//	go run ./examples/whatsapp-refunds -listen 127.0.0.1:8080 -data ./refunds-data \
//		-secret … -provider http://127.0.0.1:9000 -phone http://127.0.0.1:9001
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/door/ids/whatsapp"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/shield"
	"github.com/semelhq/semel/store/pebblestore"
)

//go:embed registry.yaml
var registry []byte

// phoneNumber is the id of the shop's number.
const phoneNumber = "770001"

func main() {
	var s shop
	address := flag.String("listen", "127.0.0.1:8080", "`address` to listen on")
	data := flag.String("data", "./refunds-data", "`directory` of the store, and of the evidence's keys and checkpoints")
	flag.StringVar(&s.secret, "secret", "", "`secret` of the app, by which WhatsApp signs")
	flag.StringVar(&s.provider, "provider", "", "`URL` of the payment service")
	flag.StringVar(&s.phone, "phone", "", "`URL` to send replies to")
	demos := flag.Bool("demo", false, "bring a payment service and a phone, and print requests to send")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", *address)
	switch {
	case err != nil:
	case *demos:
		err = demo(ctx, l, *data, os.Stdout)
	default:
		err = s.serve(ctx, l, *data)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// shop pays the refunds.
type shop struct {
	secret, provider, phone string

	pay *http.Client // sends a key that is the same in all attempts (IDS-XI.S1)
}

// openLog opens the evidence log of a store. Its keys and checkpoints are files in dir; keep
// the checkpoints where the operator of the store can't change them.
func openLog(store semel.Store, dir string) (*evidence.Log, error) {
	file := filepath.Join(dir, "evidence.key")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		var keys *evidence.Keys
		if keys, err = evidence.GenerateKeys("example.com/refunds"); err == nil {
			text = keys.Text()
			err = errors.Join(os.WriteFile(filepath.Join(dir, "evidence.pub"), keys.Trust().Text(), 0o600), os.WriteFile(file, text, 0o600))
		}
	}
	if err != nil {
		return nil, err
	}
	keys, err := evidence.ParseKeys(text)
	if err != nil {
		return nil, err
	}
	checkpoints, err := evidence.NewDirectory(filepath.Join(dir, "checkpoints"))
	if err != nil {
		return nil, err
	}
	return evidence.New(store, keys, &evidence.Options{Keepers: []evidence.Keeper{checkpoints}})
}

// doors makes the webhook with the gateway behind it, and the dispatcher that passes
// accepted messages on.
func (s *shop) doors(engine *semel.Engine) (*whatsapp.Ingress, *dispatch.Dispatcher, error) {
	s.pay = &http.Client{Timeout: 5 * time.Second, Transport: shield.ProviderKey(shield.Stripe(), nil)}
	bindings := &ids.Bindings{Handlers: map[string]ids.Handler{"refund": s.refund}}
	reg, err := ids.Load(registry, ids.LoadOptions{File: "registry.yaml", Bindings: bindings})
	if err != nil {
		return nil, nil, err
	}
	gateway, err := ids.New(engine, ids.Options{Registry: reg, Bindings: bindings})
	if err != nil {
		return nil, nil, err
	}
	ingress, err := whatsapp.New(engine, whatsapp.Options{
		Gateway: gateway, AppSecrets: []string{s.secret}, VerifyToken: s.secret,
		Tenant: func(id string) (string, bool) { return "shop", id == phoneNumber },
		Map:    whatsapp.MapperFunc(read), Reply: s.reply,
		Evidence: semel.EvidenceDurable, // 200 says that a conflict is in the log, too
	})
	if err != nil {
		return nil, nil, err
	}
	work := func(ctx context.Context, d dispatch.Delivery) error {
		err := ingress.Work(ctx, d.Message.Payload)
		if refusal, ok := errors.AsType[*whatsapp.Refusal](err); ok {
			return dispatch.Park(string(refusal.Code), err)
		}
		if later, ok := errors.AsType[*whatsapp.Later](err); ok {
			return dispatch.RetryAfter(later.After, err)
		}
		return err
	}
	lines, err := dispatch.New(engine, dispatch.Options{
		Interval: 200 * time.Millisecond,
		Destinations: map[string]dispatch.Destination{whatsapp.Destination: {
			Sender: dispatch.SenderFunc(work), Concurrency: 16, Lease: time.Second,
			MinBackoff: 50 * time.Millisecond, MaxBackoff: time.Second,
			BreakAfter: -1, // that one message can't be worked on says nothing about the next
		}},
	})
	return ingress, lines, err
}

// read parses "refund ORDER AMOUNT", and the button that confirms it, which has the same title.
func read(_ context.Context, m *whatsapp.Message) (ids.Command, error) {
	words := strings.Fields(strings.TrimPrefix(m.Text, "Yes, "))
	if len(words) != 3 || words[0] != "refund" {
		return ids.Command{}, whatsapp.ErrNoCommand
	}
	args, err := json.Marshal(map[string]string{"amount": words[2]})
	if err != nil {
		return ids.Command{}, err
	}
	c := ids.Command{Args: args, Intent: ids.Intent{Entity: "order", Action: "refund", Target: ids.TargetOf(words[1])}}
	whatsapp.Confirm(&c, m.Button)
	return c, nil
}

// payment is the answer of the payment service.
type payment struct {
	ID     string `json:"id"`
	Amount string `json:"amount"`
}

// refund executes the command: one request to the payment service. A crash before the
// answer is recorded leaves an attempt that is run again. The request then has the same key.
func (s *shop) refund(ctx context.Context, x semel.Execution, d *ids.Derivation) (semel.Result, error) {
	order := d.Command.Intent.Target.IDs()[0]
	ctx, err := shield.WithKey(ctx, x, "refund")
	if err != nil {
		return semel.Result{}, semel.Aborted(err)
	}
	var made payment
	if err := post(ctx, s.pay, s.provider+"/refunds/"+order, d.Command.Args, &made); err != nil {
		return semel.Result{}, semel.Unknown(err)
	}
	return ids.Done(fmt.Sprintf("Refunded %s of order %s, as %s.", made.Amount, order, made.ID), made)
}

// message is a message to a customer.
type message struct {
	InReplyTo string `json:"in_reply_to"`
	Text      string `json:"text"`
	Button    string `json:"button,omitempty"` // its id, if there is one
}

// reply answers the customer.
func (s *shop) reply(ctx context.Context, m *whatsapp.Message, r *ids.Response, refused error) error {
	out := message{InReplyTo: m.ID}
	switch {
	case refused != nil || r.Status == ids.StatusRejected:
		out.Text = "That is not possible."
	case r.Confirmation != nil:
		out.Text, out.Button = "Is that what you want?", whatsapp.ConfirmButton(r)
	default:
		out.Text = r.Summary
	}
	body, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return post(ctx, http.DefaultClient, s.phone, body, nil)
}

// post sends JSON, and decodes the answer, if it wants one.
func post(ctx context.Context, client *http.Client, url string, body []byte, answer any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(answer)
}

// serve runs the shop on a directory until ctx is done.
func (s *shop) serve(ctx context.Context, l net.Listener, dir string) (err error) {
	store, err := pebblestore.Open(filepath.Join(dir, "store"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	log, err := openLog(store, dir)
	if err != nil {
		return err
	}
	engine, err := semel.New(store, &semel.Options{Witness: log})
	if err != nil {
		return err
	}
	ingress, lines, err := s.doors(engine)
	if err != nil {
		return err
	}
	signing, stopSigning := context.WithCancel(context.WithoutCancel(ctx))
	working, stopWorking := context.WithCancel(context.WithoutCancel(ctx))
	var signer, workers sync.WaitGroup
	signer.Go(func() { _ = log.Run(signing) }) // these end because they are stopped
	workers.Go(func() { _ = lines.Run(working) })
	workers.Go(func() { _ = engine.Run(working, 200*time.Millisecond) })
	server := &http.Server{Handler: ingress, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	// From the doors inwards: stop accepting messages, finish the work, sign the log.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(grace))
	stopWorking()
	workers.Wait()
	err = errors.Join(err, engine.Close(grace), log.Close(grace))
	stopSigning()
	signer.Wait()
	return err
}
