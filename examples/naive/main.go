// Command naive does what many services do: before it works it looks for the key or the event among
// those before, and afterwards it remembers them. That catches the duplicates of a quiet day. Semel
// check shows the others.
//
//	go run ./examples/naive -demo
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2asrv"
)

func main() {
	address := flag.String("listen", "127.0.0.1:8080", "`address` to listen on")
	bank := flag.String("bank", "http://127.0.0.1:7391", "`URL` that charges are posted to")
	secret := flag.String("secret", "whsec_naive", "`secret` of Stripe's webhook")
	demos := flag.Bool("demo", false, "play the bank, and print requests to send")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", *address)
	switch {
	case err != nil:
	case *demos:
		err = demo(ctx, l, os.Stdout)
	default:
		err = serve(ctx, l, newService(*bank, *secret))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve runs a service until ctx is done.
func serve(ctx context.Context, l net.Listener, s *service) error {
	server := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// service remembers in memory. A table would make the same mistakes.
type service struct {
	bank, secret string

	mu      sync.Mutex
	answers map[string]answer // by key
	handled map[string]bool   // by the id of an event or an activity
}

// answer answers the duplicates of a call.
type answer struct {
	request string
	result  json.RawMessage
	at      time.Time
}

func newService(bank, secret string) *service {
	return &service{bank: bank, secret: secret, answers: map[string]answer{}, handled: map[string]bool{}}
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /forrst", s.forrst)
	mux.HandleFunc("POST /webhooks/stripe", s.stripe)
	mux.HandleFunc("POST /inbox", s.inbox)
	mux.Handle("POST /agent", a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(agent{s})))
	return mux
}

// charge asks the bank.
func (s *service) charge(ctx context.Context, body []byte) (result, failures json.RawMessage, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.bank, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return nil, nil, errors.New("the bank says " + resp.Status)
	}
	text, err := io.ReadAll(resp.Body)
	var said struct{ Result, Errors json.RawMessage }
	_ = json.Unmarshal(text, &said) // some banks say nothing
	return said.Result, said.Errors, err
}

// forrst runs a function over Forrst, and answers duplicates from memory.
func (s *service) forrst(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ID         string
		Call       struct{ Arguments json.RawMessage }
		Extensions []struct{ Options struct{ Key string } }
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || len(in.Extensions) == 0 || in.Extensions[0].Options.Key == "" {
		respond(w, in.ID, nil, json.RawMessage(`[{"code":"INVALID_ARGUMENTS","message":"Idempotency key is required"}]`), nil)
		return
	}
	key := in.Extensions[0].Options.Key
	s.mu.Lock()
	a, known := s.answers[key] // the mistake: another request may be at it, and has left nothing here yet
	s.mu.Unlock()
	data := map[string]any{"key": key, "status": "cached", "cached_at": a.at}
	if !known {
		result, failures, err := s.charge(r.Context(), in.Call.Arguments)
		if err != nil {
			failures = json.RawMessage(`[{"code":"INTERNAL_ERROR","message":"Something went wrong"}]`)
		}
		if failures != nil {
			respond(w, in.ID, nil, failures, nil)
			return
		}
		data["status"], a = "processed", answer{in.ID, result, time.Now().UTC()}
		s.mu.Lock()
		s.answers[key] = a
		s.mu.Unlock()
	}
	data["original_request_id"], data["expires_at"] = a.request, a.at.Add(24*time.Hour)
	respond(w, in.ID, a.result, nil, data)
}

func respond(w http.ResponseWriter, id string, result, failures json.RawMessage, data map[string]any) {
	doc := map[string]any{"protocol": map[string]string{"name": "forrst", "version": "0.1.0"}, "id": id, "result": result}
	if failures != nil {
		doc["errors"] = failures
	}
	if data != nil {
		doc["extensions"] = []any{map[string]any{"urn": "urn:forrst:ext:idempotency", "data": data}}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(doc) // the client may have left
}

var signature = regexp.MustCompile(`t=(\d+),v1=([0-9a-f]{64})`)

// stripe handles an event of Stripe, and ignores one that it has handled.
func (s *service) stripe(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	m := append(signature.FindStringSubmatch(r.Header.Get("Stripe-Signature")), "", "", "")
	mac := hmac.New(sha256.New, []byte(s.secret))
	fmt.Fprintf(mac, "%s.%s", m[1], body) // the next mistake: m[1] may be years ago
	var event struct{ ID string }
	if err = cmp.Or(err, json.Unmarshal(body, &event)); err != nil || !hmac.Equal([]byte(hex.EncodeToString(mac.Sum(nil))), []byte(m[2])) {
		http.Error(w, "not signed by Stripe", http.StatusBadRequest)
		return
	}
	s.handle(w, r, event.ID, body, http.StatusOK)
}

// handle charges for what has the id, unless that was handled before.
func (s *service) handle(w http.ResponseWriter, r *http.Request, id string, body []byte, status int) {
	s.mu.Lock()
	known := s.handled[id]
	s.mu.Unlock()
	if !known {
		if _, _, err := s.charge(r.Context(), body); err != nil {
			http.Error(w, "deliver it again", http.StatusInternalServerError)
			return
		}
		s.mu.Lock()
		s.handled[id] = true
		s.mu.Unlock()
	}
	w.WriteHeader(status)
}
