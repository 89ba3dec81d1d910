package service

import (
	"net/http/httptest"
	"testing"

	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/service/api"
)

// What a limit refuses is told as of the door that the request was for.
func TestTheDoorOfARequest(t *testing.T) {
	g := &generation{routes: newRouting(), doors: []doorway{{name: "webhook", paths: []string{"/hook"}}}}
	g.routes.add("POST /pay", new(semelproxy.Proxy))
	for path, want := range map[string]string{
		"/hook": "webhook", "/pay": semelhttp.Name, "/v1/batch": api.Name, "/other": api.Name,
	} {
		if got := g.doorOf(httptest.NewRequest("POST", path, nil)); got != want {
			t.Errorf("%s is for %s, not %s", path, got, want)
		}
	}
}
