package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/protocol/ids"
	"github.com/semelhq/semel/protocol/ids/whatsapp"
	"github.com/semelhq/semel/shield"
	"github.com/semelhq/semel/store/pebblestore"
)

//go:embed registry.yaml
var registry []byte

// settings are the configuration of a node, as JSON in a file.
type settings struct {
	Store       string `json:"store"`
	Keys        string `json:"keys"`        // file with the secrets of the evidence log
	Checkpoints string `json:"checkpoints"` // directory that keeps signed checkpoints
	Provider    string `json:"provider"`
	Phone       string `json:"phone"` // where replies go
	Secret      string `json:"secret"`
}

// node is one process of the service.
type node struct {
	settings

	store   *pebblestore.Store
	log     *evidence.Log
	engine  *semel.Engine
	ingress *whatsapp.Ingress
	lines   *dispatch.Dispatcher
	pay     *http.Client // carries the derived key (IDS-XI.S1)
}

// openNode puts a node together from the bottom up.
func openNode(file string) (n *node, err error) {
	n = &node{}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &n.settings)
	}
	if err != nil {
		return nil, err
	}
	if n.store, err = pebblestore.Open(n.Store, nil); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.store.Close())
		}
	}()
	if n.log, err = openLog(n.store, n.Keys, n.Checkpoints); err != nil {
		return nil, err
	}
	if n.engine, err = semel.New(n.store, &semel.Options{Witness: n.log}); err != nil {
		return nil, err
	}
	return n, n.doors()
}

// openLog opens the evidence log of a store.
func openLog(store semel.Store, keyFile, checkpoints string) (*evidence.Log, error) {
	text, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	keys, err := evidence.ParseKeys(text)
	if err != nil {
		return nil, err
	}
	dir, err := evidence.NewDirectory(checkpoints)
	if err != nil {
		return nil, err
	}
	return evidence.New(store, keys, &evidence.Options{Keepers: []evidence.Keeper{dir}})
}

// doors makes the webhook, and the gateway and dispatcher behind it.
func (n *node) doors() error {
	n.pay = &http.Client{Timeout: 5 * time.Second, Transport: shield.ProviderKey(shield.Stripe(), nil)}
	bindings := &ids.Bindings{Handlers: map[string]ids.Handler{"refund": n.refund}}
	reg, err := ids.Load(registry, ids.LoadOptions{File: "registry.yaml", Bindings: bindings})
	if err != nil {
		return err
	}
	gateway, err := ids.New(n.engine, ids.Options{Registry: reg, Bindings: bindings})
	if err != nil {
		return err
	}
	n.ingress, err = whatsapp.New(n.engine, whatsapp.Options{
		Gateway: gateway, AppSecrets: []string{n.Secret}, VerifyToken: n.Secret,
		Tenant: func(id string) (string, bool) { return "shop", id == phoneNumber },
		Map:    whatsapp.MapperFunc(read), Reply: n.reply,
		Evidence: semel.EvidenceDurable, // 200 says that a conflict is in the log, too
	})
	if err != nil {
		return err
	}
	n.lines, err = dispatch.New(n.engine, dispatch.Options{
		Interval: 200 * time.Millisecond,
		Destinations: map[string]dispatch.Destination{whatsapp.Destination: {
			Sender: dispatch.SenderFunc(n.work), Concurrency: 16, Lease: time.Second,
			MinBackoff: 50 * time.Millisecond, MaxBackoff: time.Second,
			BreakAfter: -1, // that one message can't be worked on says nothing about the next
		}},
	})
	return err
}

// work passes a taken message to the ingress.
func (n *node) work(ctx context.Context, d dispatch.Delivery) error {
	err := n.ingress.Work(ctx, d.Message.Payload)
	if refusal, ok := errors.AsType[*whatsapp.Refusal](err); ok {
		return dispatch.Park(string(refusal.Code), err)
	}
	if later, ok := errors.AsType[*whatsapp.Later](err); ok {
		return dispatch.RetryAfter(later.After, err)
	}
	return err
}

// read parses "refund ORDER AMOUNT", and the button that confirms it, whose title is the
// same.
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

// refund executes the command: one request to the payment service.
func (n *node) refund(ctx context.Context, x semel.Execution, d *ids.Derivation) (semel.Result, error) {
	order := d.Command.Intent.Target.IDs()[0]
	ctx, err := shield.WithKey(ctx, x, "refund")
	if err != nil {
		return semel.Result{}, semel.Aborted(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.Provider+"/refunds/"+order, bytes.NewReader(d.Command.Args))
	if err != nil {
		return semel.Result{}, semel.Aborted(err)
	}
	// A crash before the answer is recorded leaves an attempt that is run again. The
	// request then has the same key.
	resp, err := n.pay.Do(req)
	if err != nil {
		return semel.Result{}, semel.Unknown(err)
	}
	defer resp.Body.Close()
	var made payment
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&made); err != nil || resp.StatusCode != http.StatusOK {
		return semel.Result{}, semel.Unknown(errors.Join(err, errors.New(resp.Status)))
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
func (n *node) reply(ctx context.Context, m *whatsapp.Message, r *ids.Response, refused error) error {
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
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.Phone, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// address is the first line that a node prints.
type address struct {
	Listen string `json:"listen"`
}

// runNode serves until standard input ends.
func runNode(ctx context.Context, file string, stdin io.Reader, stdout io.Writer) error {
	n, err := openNode(file)
	if err != nil {
		return err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, n.store.Close())
	}
	srv := &http.Server{Handler: n.ingress, ReadHeaderTimeout: 5 * time.Second}
	signing, stopSigning := context.WithCancel(context.WithoutCancel(ctx))
	working, stopWorking := context.WithCancel(ctx)
	defer stopSigning()
	defer stopWorking()
	var signer, workers sync.WaitGroup
	signer.Go(func() { _ = n.log.Run(signing) })
	workers.Go(func() { _ = n.lines.Run(working) })
	workers.Go(func() { _ = n.engine.Run(working, 200*time.Millisecond) })
	go func() { _ = srv.Serve(ln) }()
	err = json.NewEncoder(stdout).Encode(address{ln.Addr().String()})
	if err == nil {
		_, _ = io.Copy(io.Discard, stdin) // until the parent is done, or gone
	}
	// From the doors inwards: stop accepting messages, finish the work, sign the log.
	ctx = context.WithoutCancel(ctx)
	err = errors.Join(err, srv.Shutdown(ctx))
	stopWorking()
	workers.Wait()
	err = errors.Join(err, n.engine.Close(ctx), n.log.Close(ctx))
	stopSigning()
	signer.Wait()
	return errors.Join(err, n.store.Close())
}
