package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
)

func TestKeyDerive(t *testing.T) {
	clause.Proves(t, "IDS-VII.5")
	items := filepath.Join(t.TempDir(), "cart.jsonl")
	if err := os.WriteFile(items, []byte("{\"variant\":\"B\",\"quantity\":2,\"price\":5}\n{\"variant\":\"A\",\"quantity\":1,\"price\":\"9.99\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const cartHash = "c9e447327b8b2047d8eeeb7b5023f9f31f8eec27c140204d1b07c27684dc37f8"
	derived, err := semel.DeriveKey("charge@1", map[string]any{"order": "o1", "amount": 2999})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, stdin, args string
		code              int
		stdout, stderr    string
	}{
		{name: "inputs from standard input", stdin: `{"amount": 2999.0, "order": "o1"}`, args: "--version charge@1", stdout: derived + "\n"},
		{name: "inputs with a time are derived with a warning", stdin: `{"lines":[{"sent_at":1}]}`, args: "--version v1",
			stdout: "d30d4bd096cab8f6fd6dacc62248a4707fabd5a4bb42afa12b8553221b2778cf\n", stderr: "semel: warning: the input \"sent_at\" may not belong in a key: a time is another one in every delivery\n"},
		{name: "inputs that are not strict JSON", stdin: `{"a":1,"a":2}`, args: "--version v1", code: ExitCheck,
			stderr: "semel: standard input: semel: invalid_call: the key inputs are not strict JSON: invalid JSON at byte 7: duplicate member name\n"},
		{name: "a template and its values", args: "--template payment:{order_id}:{amount}:{currency} --set order_id=a:b --set amount=2999 --set currency=USD", stdout: "payment:a%3Ab:2999:USD\n"},
		{name: "values from JSON, and one above them", stdin: `{"cart_mandate_id":"m1","user_id":7}`, args: "--template-name order --values - --set user_id=8", stdout: "order:m1:8\n"},
		{name: "the hash of a cart in a template", args: "--template-name cart_mandate --set session_id=s1 --cart " + items, stdout: "cart_mandate:s1:" + cartHash + "\n"},
		{name: "the hash of a cart alone", args: "--cart " + items, stdout: cartHash + "\n"},
		{name: "a template that the linter refuses", args: "--template order:{order_id}:{now} --set order_id=1 --set now=2", code: ExitCheck,
			stderr: "template: order:{order_id}:{now}\n" + strings.Repeat(" ", 27) + "^^^^^ time: a time is another one in every delivery\n" +
				strings.Repeat(" ", 33) + "leave it out, or, if it was stored with the intent before the first delivery, say so: {intent.now}\n"},
		{name: "a value that is missing", args: "--template-name order --set user_id=8", code: ExitCheck, stderr: "semel: no value for {cart_mandate_id}; --set FIELD=VALUE gives a field its value\n"},
		{name: "a template that there is not", args: "--template-name refund", code: ExitUsage,
			stderr: "semel: there is no built-in template \"refund\"; there are session, session_nonce, session_update, cart_mandate, intent_mandate, payment, order, webhook, payment_webhook, sync, sync_user, sync_product\n"},
		{name: "nothing to derive from", code: ExitUsage, stderr: "semel: one of --version, --template, --template-name and --cart is needed\n"},
		{name: "two ways at once", args: "--version v --template a:{b_id}", code: ExitUsage, stderr: "semel: --version derives from --inputs alone: it needs no template, values or cart\n"},
		{name: "two templates", args: "--template a --template-name order", code: ExitUsage, stderr: "semel: --template and --template-name exclude each other: give one of them\n"},
		{name: "values without a template", args: "--set a=b", code: ExitUsage, stderr: "semel: --set and --values need a template\n"},
		{name: "inputs without a version", args: "--inputs -", code: ExitUsage, stderr: "semel: --inputs needs --version\n"},
		{name: "a version without a name", args: "--version=", code: ExitUsage, stderr: "semel: --version is empty\n"},
		{name: "an assignment without a sign", args: "--template-name order --set a", code: ExitUsage, stderr: "semel: --set \"a\" is not of the form field=value\n"},
		{name: "a file that is not there", args: "--version v --inputs no-such-file", code: ExitUsage, stderr: "semel: there is no file no-such-file\n" + hintFor(missing(""))},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, out, errs := semelWith(t, test.stdin, append([]string{"key", "derive"}, strings.Fields(test.args)...)...)
			if test.code == ExitUsage {
				test.stderr += "Run 'semel key derive --help' for usage.\n"
			}
			if code != test.code || out != test.stdout || errs != test.stderr {
				t.Errorf("exit %d, stdout %q, stderr %q; want %d, %q, %q", code, out, errs, test.code, test.stdout, test.stderr)
			}
		})
	}
	t.Run("the JSON has the documented fields", func(t *testing.T) {
		_, out, _ := semelWith(t, `{}`, "key", "derive", "--version", "v1", "--json")
		wantFields(t, out, "key", "version")
		_, out, _ = semelWith(t, "", "key", "derive", "--template-name", "cart_mandate", "--set", "session_id=s1", "--cart", items, "--json")
		var got map[string]string
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"key": "cart_mandate:s1:" + cartHash, "scope": "session=s1", "template": "cart_mandate:{session_id}:{cart_hash}", "cart_hash": cartHash}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("JSON = %v, want %v", got, want)
		}
	})
}

func TestKeyLint(t *testing.T) {
	file := filepath.Join(t.TempDir(), "templates.txt")
	if err := os.WriteFile(file, []byte("# those of the shop\norder:{order_id}\n\n  webhook:{source}:{message_id}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("sound templates are accepted", func(t *testing.T) {
		code, out, errs := semelWith(t, "", "key", "lint", "order:{order_id}", "sync:{entity}:{entity_id}:{version}")
		if code != ExitOK || errs != "" || out != "argument 1: ok: order:{order_id}\nargument 2: ok: sync:{entity}:{entity_id}:{version}\n" {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
	})
	t.Run("every problem is shown at its place", func(t *testing.T) {
		code, out, errs := semelWith(t, "", "key", "lint", "pay:{order_id}:{now}:{nonce}", "static", "")
		if code != ExitCheck || errs != "" {
			t.Errorf("exit %d, %s", code, errs)
		}
		golden(t, "lint.txt", out)
	})
	t.Run("the JSON tells template, place, rule and what to do", func(t *testing.T) {
		code, out, _ := semelWith(t, "", "key", "lint", "--file", file, "--json")
		golden(t, "lint.json", strings.ReplaceAll(out, file, "templates.txt"))
		if code != ExitCheck {
			t.Errorf("exit %d", code)
		}
	})
	t.Run("templates come from standard input too", func(t *testing.T) {
		code, out, _ := semelWith(t, "order:{order_id}\n", "key", "lint", "--file", "-")
		if code != ExitOK || out != "standard input:1: ok: order:{order_id}\n" {
			t.Errorf("exit %d, %s", code, out)
		}
	})
	t.Run("no template at all is a usage error", func(t *testing.T) {
		if code, _, _ := semelWith(t, "", "key", "lint"); code != ExitUsage {
			t.Errorf("exit %d", code)
		}
		if code, _, _ := semelWith(t, "# none\n", "key", "lint", "--file", "-"); code != ExitUsage {
			t.Errorf("exit %d", code)
		}
	})
}
