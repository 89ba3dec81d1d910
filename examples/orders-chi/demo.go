package main

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
)

// demo prints requests to send to the service.
func demo(url string, out io.Writer) {
	key := fmt.Sprintf("cart-%d", time.Now().Unix())
	request := func(item string) stage.Request {
		return stage.Request{URL: url + "/orders", Header: http.Header{"Idempotency-Key": {key}}, Body: fmt.Sprintf(`{"item":%q}`, item)}
	}
	stage.Show(out, "Order a lamp, try again with the same key, and order a chair under that key:", request("lamp"), request("lamp"), request("chair"))
}
