package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"
)

// TestServeSaysWhere runs the service in this process.
func TestServeSaysWhere(t *testing.T) {
	stdin, parent := io.Pipe()
	out, stdout := io.Pipe()
	var stderr bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		code := Run(t.Context(), []string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--store", "memory:", "--json", "--until-eof"}, stdin, stdout, &stderr)
		stdout.Close()
		ended <- code
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%v; exit %d, %s", err, <-ended, stderr.String())
	}
	t.Run("the first line has the documented fields", func(t *testing.T) {
		wantFields(t, line, "listen", "url", "admin", "admin_url")
	})
	t.Run("its URLs answer", func(t *testing.T) {
		var a struct {
			Listen   string
			URL      string
			Admin    string
			AdminURL string `json:"admin_url"`
		}
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		if a.URL != "http://"+a.Listen || a.AdminURL != "http://"+a.Admin {
			t.Errorf("addresses = %+v", a)
		}
		for _, address := range []string{a.URL + "/openapi.json", a.AdminURL + "/readyz"} {
			resp, err := http.Get(address)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s", address, resp.Status)
			}
		}
	})
	t.Run("the end of standard input stops it", func(t *testing.T) {
		http.DefaultClient.CloseIdleConnections()
		parent.Close()
		select {
		case code := <-ended:
			if code != ExitOK {
				t.Errorf("exit %d, %s", code, stderr.String())
			}
		case <-time.After(busyPatience):
			t.Error("it goes on")
		}
	})
}
