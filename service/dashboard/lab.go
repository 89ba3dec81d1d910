package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/service/api"
)

// Lab lets the screen of that name send copies of a request, to see that one of them runs.
type Lab struct {
	// Send serves a request as the service serves what comes to it. The Lab gives it a
	// method and an address without a host, so nothing is sent to any other. tenant is
	// whose call it is. Required.
	Send func(w http.ResponseWriter, r *http.Request, tenant string)
	// Call is the identity of the call that a request delivers to Send, whose body was
	// read; zero if none is known. Required.
	Call func(r *http.Request, body []byte, tenant string) semel.ID
}

// Bounds of a run.
const (
	maxCopies  = 50
	maxLabBody = 64 << 10 // of the request, and of an answer that is looked at, in bytes
	maxShown   = 2 << 10  // of an answer, in bytes
	maxWork    = 5_000    // that a call of the execution API takes, in milliseconds
	labTime    = 60 * time.Second
)

// experiment is what the page asks for.
type experiment struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Key    string `json:"key"`
	Body   string `json:"body"`
	Copies int    `json:"copies"`
	Tenant string `json:"tenant"`
	// Work is how long a call of the execution API is worked on before it is completed,
	// in milliseconds. Other calls take as long as their upstream does.
	Work int `json:"work_ms"`
}

// fault is what is wrong with the experiment; empty if nothing is.
func (e *experiment) fault() string {
	u, err := url.ParseRequestURI(e.Path)
	switch {
	case err != nil || !strings.HasPrefix(e.Path, "/") || strings.HasPrefix(e.Path, "//") || u.Host != "":
		return "The path begins with one slash, and has no host: requests go to this service only."
	case e.Method == "" || strings.ContainsFunc(e.Method, func(c rune) bool { return c < 'A' || c > 'Z' }) || e.Method == http.MethodConnect:
		return "The method is a word in capitals, such as POST."
	case e.Copies < 1 || e.Copies > maxCopies:
		return "Send 1 to 50 copies."
	case len(e.Body) > maxLabBody/2:
		return "The body has up to 32 KiB."
	case strings.ContainsFunc(e.Key, func(c rune) bool { return c < ' ' || c > '~' }):
		return "The key has a character that no header can have."
	case e.Work < 0 || e.Work > maxWork:
		return "The work takes up to 5 seconds."
	}
	return ""
}

// request is one copy.
func (e *experiment) request(ctx context.Context, from *http.Request) *http.Request {
	u, _ := url.ParseRequestURI(e.Path) // it was checked
	text := []byte(e.Body)
	r := &http.Request{
		Method: e.Method, URL: u, RequestURI: e.Path, Host: from.Host, Header: http.Header{}, RemoteAddr: from.RemoteAddr,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
	}
	if len(text) > 0 {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		r.Header.Set("Content-Type", "text/plain; charset=utf-8")
		if json.Valid(text) {
			r.Header.Set("Content-Type", "application/json")
		}
	}
	if e.Key != "" {
		r.Header.Set(semelhttp.DefaultKeyHeader, e.Key)
	}
	return r.WithContext(ctx)
}

// copied is what one copy got, or what became of all: then Done is set.
type copied struct {
	Copy     int     `json:"copy"`
	At       float64 `json:"at_ms"`   // since the first copy was sent
	Took     float64 `json:"took_ms"` // until the answer, and the end of the work
	Status   int     `json:"status"`  // 0: the connection would have been broken off
	Decision string  `json:"decision"`
	Code     string  `json:"code,omitempty"`
	Body     string  `json:"body,omitempty"`
}

// serveLab sends copies of a request at once, and tells what each of them got as soon as it
// did, one line of JSON for each; the last line names the record.
func (d *Dashboard) serveLab(w http.ResponseWriter, r *http.Request, caller *api.Caller) {
	if d.opts.Lab == nil {
		refuse(w, semel.CodeForbidden, "The Lab is off. Set dashboard.lab to have it.")
		return
	}
	var e experiment
	text, err := body.Read(w, r, maxLabBody)
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil {
		refuse(w, semel.CodeInvalidCall, "The experiment is too large, or isn't JSON.")
		return
	}
	if why := e.fault(); why != "" {
		refuse(w, semel.CodeInvalidCall, why)
		return
	}
	if !overseesAll(caller) {
		e.Tenant = caller.Tenant
	}
	if !d.experimenting.TryLock() {
		refuse(w, semel.CodeInFlight, "Another experiment is running. Wait until it has ended.")
		return
	}
	defer d.experimenting.Unlock()
	ctx, cancel := context.WithTimeout(r.Context(), labTime)
	defer cancel()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	out, lines := json.NewEncoder(w), http.NewResponseController(w)
	_ = lines.SetWriteDeadline(time.Now().Add(labTime + 5*time.Second)) // a writer without deadlines has no connection
	for got := range d.copies(ctx, r, &e) {
		_ = out.Encode(got) // who has gone away sees nothing more; the copies go on
		_ = lines.Flush()
	}
	record := ""
	if id := d.opts.Lab.Call(e.request(ctx, r), []byte(e.Body), e.Tenant); id != (semel.ID{}) && sees(caller, id.Tenant) {
		record = id.Encode()
	}
	_ = out.Encode(map[string]string{"record": record})
}

// copies sends all copies at once. Each goes on when the caller has gone away, as a client's
// retry would.
func (d *Dashboard) copies(ctx context.Context, r *http.Request, e *experiment) <-chan copied {
	all := make(chan copied)
	go func() {
		defer close(all)
		var work sync.WaitGroup
		ready, began := make(chan struct{}), time.Time{}
		for n := range e.Copies {
			work.Go(func() {
				<-ready
				got := copied{Copy: n + 1, At: since(began)}
				d.send(ctx, r, e, &got)
				got.Took = since(began) - got.At
				all <- got
			})
		}
		began = time.Now()
		close(ready)
		work.Wait()
	}()
	return all
}

// since is how long ago t was, in milliseconds.
func since(t time.Time) float64 { return float64(time.Since(t).Microseconds()) / 1000 }

// send sends one copy and reads its answer. If it began an execution, this is the worker
// that owns it, and completes it.
func (d *Dashboard) send(ctx context.Context, r *http.Request, e *experiment, got *copied) {
	a := d.answerTo(e.request(ctx, r), e.Tenant)
	got.Status, got.Body = a.status, a.shown()
	got.Decision, got.Code = a.decision()
	var begun struct{ Execution string }
	if a.status != http.StatusCreated || !strings.HasSuffix(e.Path, "/executions") || json.Unmarshal(a.text, &begun) != nil || begun.Execution == "" {
		return
	}
	select {
	case <-time.After(time.Duration(e.Work) * time.Millisecond):
	case <-ctx.Done():
	}
	// If the process dies before this, the lease ends, and policy settles the attempt.
	end := experiment{Method: http.MethodPost, Path: "/v1/executions/" + begun.Execution + "/complete", Body: `{"result":{"lab":true}}`, Copies: 1}
	a = d.answerTo(end.request(context.WithoutCancel(ctx), r), e.Tenant)
	got.Body = a.shown()
}

// answerTo has a request served.
func (d *Dashboard) answerTo(r *http.Request, tenant string) *labAnswer {
	a := &labAnswer{header: http.Header{}}
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler {
			panic(v)
		} else if v != nil {
			a.status = 0
		}
	}()
	d.opts.Lab.Send(a, r, tenant)
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a
}

// labAnswer keeps an answer, as far as it is looked at.
type labAnswer struct {
	header http.Header
	status int
	text   []byte
}

// Header implements [http.ResponseWriter].
func (a *labAnswer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *labAnswer) WriteHeader(status int) {
	if status >= 200 && a.status == 0 {
		a.status, a.header = status, a.header.Clone()
	}
}

// Write implements [http.ResponseWriter].
func (a *labAnswer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.text = append(a.text, p[:min(len(p), maxLabBody-len(a.text))]...)
	return len(p), nil
}

// FlushError does nothing: the answer is looked at when it is whole.
func (a *labAnswer) FlushError() error { return nil }

// shown is the beginning of the body, if it is text.
func (a *labAnswer) shown() string {
	text := a.text[:min(len(a.text), maxShown)]
	if !utf8.Valid(a.text) {
		return ""
	}
	return strings.ToValidUTF8(string(text), "")
}

// decision is what the delivery got, as far as its answer tells: a decision of the engine,
// passed where nothing was guarded, or refused. A door's own refusals have a code.
func (a *labAnswer) decision() (decision, code string) {
	for _, marker := range []string{semelhttp.IETF().Marker, semelhttp.Stripe().Marker} {
		if a.header.Get(marker) == "true" {
			return string(semel.Replay), ""
		}
	}
	if a.header.Get(semelhttp.UnguardedHeader) != "" {
		return "passed", ""
	}
	if a.status < 400 && a.status != 0 {
		return string(semel.Execute), ""
	}
	var said struct {
		Code  string
		Error struct{ Code string }
	}
	ours := a.header.Get("Content-Type") == "application/problem+json" || strings.Contains(a.header.Get("Link"), `rel="status"`)
	if !ours || json.Unmarshal(a.text, &said) != nil || said.Code+said.Error.Code == "" {
		return string(semel.Execute), ""
	}
	code = said.Code + said.Error.Code
	for _, d := range semel.Decisions() {
		if c, refused := d.Code(); refused && string(c) == code {
			return string(d), code
		}
	}
	if m, ok := door.Lookup(semel.Code(code)); ok && m.Status == http.StatusBadGateway {
		return string(semel.Execute), code // the upstream failed
	}
	return "refused", code
}
