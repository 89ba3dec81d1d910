// Package peer talks to a listener of a Semel service. Every answer of its APIs has a mark, and
// a client sends its token to nobody before it has seen the mark: a port may belong to the
// service's other listener, which passes requests on, or to another program by now.
package peer

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Header marks an answer of Semel's own APIs. Its value is the kind of listener and the version
// of the API, as in admin/v1. It helps against mistakes; anybody who wants to pass for Semel
// can send it.
const Header = "Semel-Api"

// The kinds of listeners in the mark.
const (
	Admin = "admin"
	Data  = "data"
)

// version is the version of the API.
const version = "v1"

// Mark marks the answer of a listener as Semel's.
func Mark(h http.Header, kind string) { h[Header] = []string{kind + "/" + version} }

// Listener is the address for requests. Its methods may be called concurrently.
type Listener struct {
	// URL is the address, without a slash at its end.
	URL string
	// Kind is the kind of listener that must answer. Empty: either may.
	Kind string
	// Token is sent with every request, or else the present content of TokenFile. Both are optional.
	Token, TokenFile string
	// HTTP makes the requests. It must not follow redirects.
	HTTP *http.Client

	met sync.Map // the parts of the API that have given a marked answer
}

// NoRedirects is for the CheckRedirect of HTTP: otherwise another address would get the token.
func NoRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Stranger says that something other than the service has answered.
type Stranger struct {
	// Status is the status of that answer.
	Status int
	// Reason says what answered. It quotes nothing of the body.
	Reason string
	// Unsent says that the request itself wasn't sent: this answers an earlier question.
	Unsent bool
}

// Error returns the status and the reason.
func (s *Stranger) Error() string { return fmt.Sprintf("status %d: %s", s.Status, s.Reason) }

// Unasked says that a question before the request got no answer, so that the request wasn't sent.
type Unasked struct{ Err error }

// Error returns the question's error.
func (u *Unasked) Error() string { return u.Err.Error() }

// Unwrap returns the error of the question.
func (u *Unasked) Unwrap() error { return u.Err }

// TokenError says that there is no token to send.
type TokenError struct{ Err error }

// Error describes the problem with the token or its file.
func (e *TokenError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *TokenError) Unwrap() error { return e.Err }

// Do sends a request to a path below URL, with the token if there is one, and returns the
// marked answer. It also returns unmarked answers that only refuse for the time being: they may
// come from the service before it has looked at the request.
func (l *Listener) Do(r *http.Request) (*http.Response, error) {
	token, err := Token(l.Token, l.TokenFile)
	if err != nil {
		return nil, &Unasked{&TokenError{err}}
	}
	part := l.part(r)
	if _, met := l.met.Load(part); !met && token != "" {
		refused, err := l.meet(r, part)
		if refused != nil || err != nil {
			return refused, err
		}
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := l.HTTP.Do(r)
	if err != nil {
		return nil, err
	}
	stranger := l.stranger(resp)
	switch {
	case stranger == nil:
		l.met.Store(part, true)
	case !refusing(resp):
		l.met.Delete(part) // ask whatever answers now before it gets a token
		_ = resp.Body.Close()
		return nil, stranger
	}
	return resp, nil
}

// part returns the part of the API that a request is for, such as /v1/records/: a service may
// have some parts at an address, and something else the others. It contains no names of records.
func (l *Listener) part(r *http.Request) string {
	path := strings.TrimPrefix(r.URL.EscapedPath(), path(l.URL))
	words := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 3)
	return "/" + strings.Join(words[:min(2, len(words))], "/") + "/"
}

func path(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.EscapedPath()
}

// meet asks a part of the API, without a token, who answers there. There is nothing at such an
// address, so the service says so. It returns an answer that refuses for the time being.
func (l *Listener) meet(r *http.Request, part string) (*http.Response, error) {
	question, err := http.NewRequestWithContext(r.Context(), http.MethodGet, l.URL+part, nil)
	if err != nil {
		return nil, &Unasked{err}
	}
	resp, err := l.HTTP.Do(question)
	if err != nil {
		return nil, &Unasked{err}
	}
	stranger := l.stranger(resp)
	if stranger != nil && refusing(resp) {
		return resp, nil
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be reused
	_ = resp.Body.Close()
	if stranger != nil {
		stranger.Unsent = true
		return nil, stranger
	}
	return nil, nil
}

// refusing reports whether an answer only says that nobody is looking at requests at the moment.
func refusing(resp *http.Response) bool {
	return IsProblem(resp) && slices.Contains([]int{
		http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, http.StatusServiceUnavailable,
	}, resp.StatusCode)
}

// IsProblem reports whether an answer is a problem document (RFC 9457).
func IsProblem(resp *http.Response) bool {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return media == "application/problem+json"
}

// stranger says what answered, unless it was the service.
func (l *Listener) stranger(resp *http.Response) *Stranger {
	mark := resp.Header.Get(Header)
	kind, spoken, _ := strings.Cut(mark, "/")
	s := &Stranger{Status: resp.StatusCode}
	switch {
	case mark == "":
		media, server := resp.Header.Get("Content-Type"), resp.Header.Get("Server")
		s.Reason = "it has no " + Header + " header; content type " + short(media) + ", server " + short(server)
		if resp.StatusCode >= 300 && resp.StatusCode < 400 {
			s.Reason += "; it is a redirect, which is not followed"
		}
	case spoken != version:
		s.Reason = "it speaks another version of the API: " + short(mark)
	case l.Kind != "" && l.Kind != kind:
		s.Reason = "it comes from the " + short(kind) + " listener of a Semel service, not from its " + l.Kind + " listener"
	default:
		return nil
	}
	return s
}

// short shortens a header's value for a message.
func short(text string) string {
	if text == "" {
		return "unknown"
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return text[:min(60, len(text))]
}

// Token returns the token to send: the given one, or the file's; empty for none. No error
// contains it.
func Token(token, file string) (string, error) {
	if file != "" {
		text, err := readOwn(file)
		if err != nil {
			return "", fmt.Errorf("token file: %w", err)
		}
		if token = strings.TrimSpace(string(text)); token == "" {
			return "", errors.New("the token file is empty: write the token into it")
		}
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("the token has characters that a header can't carry")
	}
	return token, nil
}
