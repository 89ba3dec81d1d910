package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/rig/stage"
)

const mcpPage = "docs/mcp.md"

// pageShop is the server of the page. It breaks off when it gets the order R-2.
func pageShop() http.Handler {
	refunds := 0
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		result := `{"tools":[{"name":"refund"},{"name":"get_refunds","annotations":{"readOnlyHint":true}}]}`
		if method, _ := jsonscan.Text(jsonscan.Member(body, "method")); method == "tools/call" {
			order, _ := jsonscan.Text(jsonscan.Member(jsonscan.Member(jsonscan.Member(body, "params"), "arguments"), "order_id"))
			if refunds++; order == "R-2" {
				panic(http.ErrAbortHandler)
			}
			result = fmt.Sprintf(`{"content":[{"type":"text","text":"refunded %s as re_%d"}]}`, order, refunds)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, jsonscan.Member(body, "id"), result)
	})
}

// TestPageOfMCP types what docs/mcp.md shows, once at the one command that it begins with, and once at
// a service with the page's configuration.
func TestPageOfMCP(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("SEMEL_REQUIRE_SERVICES") == "1" {
			t.Fatal("the page needs curl")
		}
		t.Skip("the page needs curl: install the package curl")
	}
	text, err := os.ReadFile("../../../../" + mcpPage)
	if err != nil {
		t.Fatal(err)
	}
	config := regexp.MustCompile("(?s)<!-- config -->\n```yaml\n(.*?)```").FindSubmatch(text)
	begin := regexp.MustCompile(`(?m)^semel (mcp .*)$`).FindSubmatch(text)
	if config == nil || begin == nil {
		t.Fatal("the page shows no configuration, or doesn't begin with a command")
	}
	for _, way := range []string{"by one command", "in the service"} {
		t.Run(way, func(t *testing.T) {
			shop := httptest.NewServer(pageShop())
			defer shop.Close()
			p := newPage(t)
			args := append(strings.Fields(string(begin[1])), "--store", "memory:", "--json", "--listen", "127.0.0.1:0")
			args[1] = shop.URL + "/mcp"
			if way == "in the service" {
				p.write("semel.yaml", strings.ReplaceAll(string(config[1]), "http://127.0.0.1:3000", shop.URL))
				args = []string{"serve", "--config", "semel.yaml", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--store", "memory:", "--json"}
			}
			command := exec.Command(program(t), args...)
			command.Dir = p.dir
			at, err := stage.Start(t.Context(), command)
			if err != nil {
				t.Fatal(err)
			}
			defer at.Kill()
			p.place = strings.NewReplacer("http://127.0.0.1:8480/mcp", strings.TrimSuffix(at.URL, "/mcp")+"/mcp")
			if list := ask(t, strings.TrimSuffix(at.URL, "/mcp")+"/mcp", "tools/list", "{}"); strings.Count(list, `"idempotentHint":true`) != 1 {
				t.Errorf("the tools are %s", list)
			}
			p.walks(mcpPage, "")
			if way == "in the service" {
				if err := p.run("semel why R-1 --url "+at.AdminURL, "...refund..."); err != nil { // as the configuration says
					t.Error(err)
				}
			}
		})
	}
}
