package others

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// requests is what all are judged by. The body says what the shop does with it.
const requests = `POST /charges
Content-Type: application/json
Authorization: Bearer alice

{"amount": 1200, "order": "{{unique}}"}
### other caller
POST /charges
Content-Type: application/json
Authorization: Bearer bob

{"amount": 1200, "order": "{{unique}}"}
### elsewhere
POST /refunds
Content-Type: application/json
Authorization: Bearer alice

{"amount": 1200, "order": "{{unique}}"}
### query
POST /charges?currency=usd
Content-Type: application/json
Authorization: Bearer alice

{"amount": 1200, "order": "{{unique}}"}
### slow
POST /charges
Content-Type: application/json
Authorization: Bearer alice

{"amount": 1200, "order": "{{unique}}", "mode": "slow"}
### rejected
POST /charges
Content-Type: application/json
Authorization: Bearer alice

{"amount": 1200, "order": "{{unique}}", "mode": "rejected"}
### failing
POST /charges
Content-Type: application/json
Authorization: Bearer alice

{"amount": 1200, "order": "{{unique}}", "mode": "failing"}
### big
POST /charges
Content-Type: application/json
Authorization: Bearer alice

{"amount": 1200, "order": "{{unique}}", "mode": "big"}
`

// bank counts the effects of a shop, and outlives it.
func bank(t *testing.T) (address string) {
	var effects atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			fmt.Fprint(w, effects.Add(1))
			return
		}
		fmt.Fprint(w, effects.Load())
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// sale is what a shop in Go does with a request: it asks the bank for money, unless the request
// is to be rejected.
func sale(body string) (status int, text string) {
	if strings.Contains(body, `"rejected"`) {
		return http.StatusUnprocessableEntity, `{"error":"declined"}`
	}
	res, err := http.Post(os.Getenv("BANK"), "", nil)
	if err != nil {
		return http.StatusBadGateway, `{"error":"no bank"}`
	}
	defer func() { _ = res.Body.Close() }()
	n, err := io.ReadAll(res.Body)
	switch {
	case err != nil || strings.Contains(body, `"failing"`):
		return http.StatusInternalServerError, `{"error":"after charge ` + string(n) + `"}`
	case strings.Contains(body, `"slow"`):
		<-time.After(400 * time.Millisecond)
	case strings.Contains(body, `"big"`):
		return http.StatusCreated, `{"charge":` + string(n) + `,"note":"` + strings.Repeat("x", 200_000) + `"}`
	}
	return http.StatusCreated, `{"charge":` + string(n) + `}`
}

// shop is the shop as a handler of net/http.
func shop(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the request broke off
	}
	status, text := sale(string(body))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// listen is where a server in Go listens, told to who has started it. After it was killed it
// gets the same address again.
func listen() net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	must(err)
	must(json.NewEncoder(os.Stdout).Encode(map[string]string{"url": "http://" + l.Addr().String()}))
	return l
}

// must ends a server that can't serve; who has started it says what it wrote.
func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
