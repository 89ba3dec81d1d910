package safehttp_test

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/safehttp"
)

// A client that retries with one key, whatever happens to the connection.
func ExampleRetrier() {
	tries := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, isUUIDv7 := semel.KeyTime(r.Header.Get("Idempotency-Key"))
		tries++
		fmt.Println("try", tries, "has a key:", isUUIDv7)
		if tries == 1 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	client := &http.Client{Transport: &safehttp.Retrier{}}
	resp, err := client.Post(server.URL, "text/plain", strings.NewReader("charge"))
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output:
	// try 1 has a key: true
	// try 2 has a key: true
	// 200 OK
}

// What a failed connection proves about an effect.
func ExampleNothingSent() {
	client := &http.Client{Transport: &safehttp.Transport{}}
	r, _ := http.NewRequest(http.MethodPost, "http://127.0.0.1:1/charges", strings.NewReader("charge"))
	_, err := client.Do(r)
	if safehttp.NothingSent(err) {
		err = semel.Aborted(err) // may be tried again
	}
	fmt.Println(err != nil, safehttp.NothingSent(err), safehttp.NothingSent(errors.New("timeout")))
	// Output: true true false
}
