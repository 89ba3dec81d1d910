package stage

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Toy serves what an example needs around it, such as a payment gateway, until stop is called.
func Toy(h http.Handler) (url string, stop func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }() // which ends because it is closed
	return "http://" + l.Addr().String(), server.Close, nil
}

// Request is a POST that the demo of an example prints, for people to send. Its body is JSON,
// unless Header has another Content-Type.
type Request struct {
	URL    string
	Header http.Header
	Body   string
}

// String is the command that sends the request. It prints the answer, and the status on a line of
// its own.
func (r Request) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, `curl -sS -w '\n%%{http_code}\n' %s`, r.URL)
	header := http.Header{"Content-Type": {"application/json"}}
	maps.Copy(header, r.Header)
	for _, name := range slices.Sorted(maps.Keys(header)) {
		fmt.Fprintf(&b, " -H %s", quoted(name+": "+header[name][0]))
	}
	fmt.Fprintf(&b, " --data-raw %s", quoted(r.Body))
	return b.String()
}

// quoted is a word for the shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// Show prints what people can do in a demo, and the requests for it, each on a line of its own.
func Show(out io.Writer, what string, requests ...Request) {
	fmt.Fprintln(out, what)
	for _, r := range requests {
		fmt.Fprintf(out, "\n  %s\n", r)
	}
	fmt.Fprintln(out)
}
