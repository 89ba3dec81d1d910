package openapi

import (
	"strings"
	"testing"
)

const shop = `openapi: 3.1.0
info: {title: Shop, version: "1"}
# where it is
servers:
  - url: http://127.0.0.1:3000/v1
paths:
  /orders:
    get:
      responses:
        "200": {description: all orders}
    post: # creates one
      operationId: createOrder
      responses:
        201:
          description: created
        422:
          description: ours
  /orders/{id}/refund:
    parameters:
      - {name: id, in: path, required: true, schema: {type: string}}
    post:
      parameters:
        - {name: dry, in: query, schema: {type: boolean}}
      responses:
        "200":
          $ref: '#/components/responses/Done'
  /keyed:
    parameters:
      - $ref: '#/components/parameters/Key'
    post:
      responses: {"200": {description: done}}
components:
  parameters:
    Key: {name: idempotency-key, in: header, schema: {type: string}}
  responses:
    Done:
      description: done
`

func annotate(t *testing.T, text string) (string, int) {
	t.Helper()
	d, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	n := d.Annotate("Idempotency-Key", "Idempotency-Replayed", false)
	out, err := d.Text()
	if err != nil {
		t.Fatal(err)
	}
	return string(out), n
}

func TestAnnotate(t *testing.T) {
	once, n := annotate(t, shop)
	if n != 2 {
		t.Errorf("%d operations changed, want 2: one reads, and one has the header", n)
	}
	for want, times := range map[string]int{
		"# where it is": 1, "# creates one": 1, "#/components/parameters/IdempotencyKey": 2, "#/components/responses/IdempotencyInFlight": 2,
		"#/components/responses/IdempotencyConflict": 1, "description: ours": 1, "#/components/headers/Idempotency-Replayed": 2,
		"name: dry": 1, "required: true": 2,
	} {
		if got := strings.Count(once, want); got != times {
			t.Errorf("%q is there %d times, want %d:\n%s", want, got, times, once)
		}
	}
	if before, after := strings.Index(once, "/orders:"), strings.Index(once, "/keyed:"); before > after {
		t.Error("the order of the paths has changed")
	}
	if twice, n := annotate(t, once); n != 0 || twice != once {
		t.Errorf("annotated again, %d operations change", n)
	}
}

func TestJSONStaysJSON(t *testing.T) {
	out, n := annotate(t, `{"openapi":"3.0.3","paths":{"/a":{"post":{"responses":{"200":{"description":"x <y>"}}}}}}`)
	if n != 1 || !strings.HasPrefix(out, "{\n  \"openapi\": \"3.0.3\",") || !strings.Contains(out, `"x <y>"`) || !strings.Contains(out, `"required": true`) {
		t.Errorf("%d, %s", n, out)
	}
}

func TestWhatIsNoDescription(t *testing.T) {
	for text, want := range map[string]string{"swagger: '2.0'": "OpenAPI 2", "a: 1": "describes no API", "[": "", "": "describes no API"} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestNames(t *testing.T) {
	for op, want := range map[string]string{
		"POST /orders": "orders.create", "POST /v1/orders": "orders.create", "PATCH /orders/{id}": "orders.update", "POST /orders/{id}/refund": "orders.refund",
		"POST /orders/{id}/lines": "orders.lines.create", "POST /": "create", "POST /payment-intents/{id}/confirm": "payment_intents.confirm",
	} {
		method, path, _ := strings.Cut(op, " ")
		if got := nameOf(Operation{Method: method, Path: path}); got != want {
			t.Errorf("%s is named %s, want %s", op, got, want)
		}
	}
}

func TestRoutes(t *testing.T) {
	d, err := Parse([]byte(shop))
	if err != nil {
		t.Fatal(err)
	}
	_, server := d.Changing()
	text, err := d.Routes(server)
	if err != nil {
		t.Fatal(err)
	}
	const want = `operations:
  - name: orders.create
  - name: orders.refund
    financial: true
  - name: keyed.create
routes:
  - match: POST /v1/orders
    upstream: http://127.0.0.1:3000
    operation: orders.create
  - match: POST /v1/orders/{id}/refund
    upstream: http://127.0.0.1:3000
    operation: orders.refund
  - match: POST /v1/keyed
    upstream: http://127.0.0.1:3000
    operation: keyed.create
  - match: /
    upstream: http://127.0.0.1:3000
    mode: "off"
archive:
  dir: ./semel-archive
`
	if string(text) != want {
		t.Errorf("the routes are\n%s", text)
	}
}
