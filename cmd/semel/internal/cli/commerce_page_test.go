package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/stage"
)

const commercePage = "docs/commerce.md"

// pageBackEnd is what the page has at port 9000.
func pageBackEnd() http.Handler {
	var mu sync.Mutex
	count := map[string]int{}
	got := map[string][]byte{} // what sides of an entity got last
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodPost {
			count[r.URL.Path]++
		}
		n := count[r.URL.Path]
		switch r.URL.Path {
		case "/token":
			fmt.Fprintf(w, `{"token":"jwt-%d"}`, n)
		case "/charge":
			fmt.Fprintf(w, `{"transaction_id":"pi_%d"}`, n)
		case "/charged":
			fmt.Fprint(w, count["/charge"])
		case "/apply", "/other-side":
			if r.Method == http.MethodPost {
				got[r.URL.Path], _ = io.ReadAll(r.Body)
				return
			}
			_, _ = w.Write(got[r.URL.Path])
		case "/database":
			_, _ = w.Write(got["/apply"])
		case "/orders":
			fmt.Fprintf(w, `{"order":"order_%d"}`, n)
		}
	})
}

// TestPageOfCommerce runs docs/commerce.md: a reader without Go gets from a login to a paid
// order by what is printed there.
func TestPageOfCommerce(t *testing.T) {
	clause.Proves(t, "MAP-SVC.1")
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("SEMEL_REQUIRE_SERVICES") == "1" {
			t.Fatal("the page needs curl")
		}
		t.Skip("the page needs curl: install the package curl")
	}
	back := httptest.NewServer(pageBackEnd())
	defer back.Close()
	text, err := os.ReadFile("../../../../" + commercePage)
	if err != nil {
		t.Fatal(err)
	}
	config := regexp.MustCompile("(?s)<!-- config -->\n```yaml\n(.*?)```").FindSubmatch(text)
	if config == nil {
		t.Fatal("the page shows no configuration")
	}
	p := newPage(t)
	p.walks(commercePage, "### Configure")
	p.write("semel.yaml", strings.ReplaceAll(string(config[1]), "http://127.0.0.1:9000", back.URL))
	service := exec.Command(program(t), "serve", "--config", "semel.yaml", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--json")
	service.Dir = p.dir
	at, err := stage.Start(t.Context(), service)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Kill()
	p.place = strings.NewReplacer("http://127.0.0.1:8480", at.URL, "http://127.0.0.1:9000", back.URL)
	p.walks(commercePage, "### Log in, agree, pay, order")
	var paid struct {
		TransactionID string `json:"transaction_id"`
	}
	kept, err := os.ReadFile(p.dir + "/payment.json")
	if err == nil {
		err = json.Unmarshal(kept, &paid)
	}
	if err != nil || paid.TransactionID != "pi_1" {
		t.Errorf("the page paid %s, %v", kept, err)
	}
}
