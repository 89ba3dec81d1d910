package linedoor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/doortest"
	"github.com/semelhq/semel/examples/linedoor"
	"github.com/semelhq/semel/store/memstore"
)

// open makes a door whose one caller may pay.
func open(t *testing.T, e *semel.Engine, work func(ctx context.Context, x semel.Execution, payload string) (string, error)) *linedoor.Door {
	t.Helper()
	d, err := linedoor.New(e, linedoor.Options{
		Operation: semel.Operation{Name: "pay"}, Callers: map[string]string{"s3cret": "shop"}, Work: work,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return d
}

// snippet: Suite

func TestDoor(t *testing.T) {
	doortest.Run(t, doortest.Door{
		NoAction: "a line has a code and a sentence",
		Open: func(t *testing.T, e *semel.Engine, work func() error) doortest.Deliver {
			d := open(t, e, func(context.Context, semel.Execution, string) (string, error) { return "paid", work() })
			return func(key string) doortest.Reply {
				return doortest.Reply{Code: code(d.Answer(t.Context(), "s3cret "+key+" 4200 EUR"))}
			}
		},
	})
}

// code is the code of an answer; empty for an outcome.
func code(answer string) string {
	if rest, refused := strings.CutPrefix(answer, "ERR "); refused {
		code, _, _ := strings.Cut(rest, " ")
		return code
	}
	return ""
}

// end snippet

func TestLines(t *testing.T) {
	e, err := semel.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.WithoutCancel(t.Context())) })
	paid := 0
	d := open(t, e, func(_ context.Context, _ semel.Execution, payload string) (string, error) {
		if payload == "nothing" {
			return "", semel.Rejected("amount", errors.New("there is nothing to pay"))
		}
		paid++
		return fmt.Sprintf("payment %d of %s", paid, payload), nil
	})
	for _, x := range []struct{ line, want string }{
		{"s3cret order-17 4200 EUR", "OK payment 1 of 4200 EUR"},
		{"s3cret order-17 4200 EUR", "OK payment 1 of 4200 EUR"},
		{"s3cret order-17 9900 EUR", "ERR conflict "},
		{"s3cret order-18 nothing", "ERR rejected there is nothing to pay"},
		{"s3cret order-18 nothing", "ERR rejected there is nothing to pay"},
		{"other order-17 4200 EUR", "ERR unauthorized "},
		{"s3cret order-19", "ERR invalid_call "},
	} {
		if got := d.Answer(t.Context(), x.line); !strings.HasPrefix(got, x.want) {
			t.Errorf("%s: %s, want %s", x.line, got, x.want)
		}
	}
	if paid != 1 {
		t.Errorf("paid %d times", paid)
	}
	t.Run("a line that is too long ends the connection", func(t *testing.T) {
		var out bytes.Buffer
		conn := struct {
			io.Reader
			io.Writer
		}{strings.NewReader("s3cret order-20 1 EUR\n" + strings.Repeat("x", 20<<10)), &out}
		if err := d.Serve(t.Context(), conn); err == nil {
			t.Error("no error")
		}
		if got := out.String(); !strings.HasPrefix(got, "OK payment 2 of 1 EUR\nERR too_large ") {
			t.Errorf("%q", got)
		}
	})
}

// TestREADME sends the lines that the README shows.
func TestREADME(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	e, err := semel.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.WithoutCancel(t.Context())) })
	d := open(t, e, func(_ context.Context, _ semel.Execution, payload string) (string, error) {
		return "paid " + payload, nil
	})
	lines, got := 0, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if request, ok := strings.CutPrefix(line, "> "); ok {
			lines, got = lines+1, d.Answer(t.Context(), request)
		} else if want, ok := strings.CutPrefix(line, "< "); ok && got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if lines != 3 {
		t.Errorf("it shows %d lines", lines)
	}
}

// TestSize keeps the example one that you read in a few minutes.
func TestSize(t *testing.T) {
	src, err := os.ReadFile("linedoor.go")
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(src, []byte("\n")); lines >= 200 {
		t.Errorf("the door has %d lines, want fewer than 200", lines)
	}
}
