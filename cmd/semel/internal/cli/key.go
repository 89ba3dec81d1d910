package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/internal/keytemplate"
	"github.com/semelhq/semel/internal/spelling"
)

func newKey() *cobra.Command {
	return group(&cobra.Command{Use: "key", Short: "Derive idempotency keys, and check key templates"},
		newKeyDerive(), newKeyLint())
}

// derivedKey is what semel key derive --json prints.
type derivedKey struct {
	Key string `json:"key"`
	// Version is set for a key derived from inputs, Template for one made from a template,
	// Scope if that is built in, and CartHash if there was a cart.
	Scope    string `json:"scope,omitempty"`
	Version  string `json:"version,omitempty"`
	Template string `json:"template,omitempty"`
	CartHash string `json:"cart_hash,omitempty"`
}

// deriveFlags are the flags of semel key derive.
type deriveFlags struct {
	version, inputs        string
	template, templateName string
	set                    []string
	values, cart           string
}

func newKeyDerive() *cobra.Command {
	var f deriveFlags
	cmd := &cobra.Command{
		Use:   "derive",
		Short: "Derive an idempotency key from a call's content",
		Long: `Derive the idempotency key of a call from its content, so that every delivery of
the call has the same key.

With --version the key is the SHA-256 of the version and the canonical form of
the JSON inputs, read from --inputs or standard input. The order of members,
white space and the spelling of numbers don't matter.

With --template or --template-name the key is the template with its fields
replaced by values. Anything in a value but letters, digits and -._~ becomes
%XX, so a value with a ":" can't imitate another field. This refuses the same
templates as 'semel key lint'.

With --cart the hash of a cart, given as one JSON object per line with variant,
quantity and price, becomes the value of {cart_hash}; without a template the
hash itself is printed. The order of the items doesn't matter.

` + templateTable() + `
{intent.created_at} is when the intent was first stored, before the first
delivery: never the time of this delivery.

The scope of a key is part of the identity of a call: the same key in another
scope is another call. A key of a built-in template has the scope in the list.

The JSON has key, and version, template, scope and cart_hash where they apply.`,
		Example: `  echo '{"order":"o1","amount":2999}' | semel key derive --version charge@1
  semel key derive --template 'payment:{order_id}:{amount}:{currency}' \
    --set order_id=o1 --set amount=2999 --set currency=USD
  semel key derive --template-name cart_mandate --set session_id=s1 --cart cart.jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := f.derive(cmd)
			if err != nil {
				return err
			}
			return printOne(cmd, key, key.Key)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.version, "version", "", "derive from JSON inputs; the `name` of the rule that chose them")
	flags.StringVar(&f.inputs, "inputs", "-", "`file` with the JSON inputs; - is standard input")
	flags.StringVar(&f.template, "template", "", "make the key from this `template`")
	flags.StringVar(&f.templateName, "template-name", "", "make the key from a built-in template, by `name`")
	flags.StringArrayVar(&f.set, "set", nil, "value of a field, as `field=value`; may be repeated")
	flags.StringVar(&f.values, "values", "", "`file` with a JSON object of values; - is standard input")
	flags.StringVar(&f.cart, "cart", "", "`file` with the items of a cart; - is standard input")
	return jsonFlag(cmd)
}

// templateTable lists the built-in templates for the help.
func templateTable() string {
	var b strings.Builder
	b.WriteString("Built-in templates, and the scope in which each key is unique:\n")
	for _, f := range commerce.Formats() {
		fmt.Fprintf(&b, "  %-16s one %-8s %s\n", f.Name, f.Scope, f.Template)
	}
	return b.String()
}

func (f *deriveFlags) derive(cmd *cobra.Command) (derivedKey, error) {
	flags := cmd.Flags()
	byTemplate := flags.Changed("template") || flags.Changed("template-name")
	byInputs := flags.Changed("version")
	values := flags.Changed("set") || flags.Changed("values")
	switch {
	case flags.Changed("template") && flags.Changed("template-name"):
		return derivedKey{}, usage("--template and --template-name exclude each other: give one of them")
	case byInputs && (byTemplate || values || flags.Changed("cart")):
		return derivedKey{}, usage("--version derives from --inputs alone: it needs no template, values or cart")
	case flags.Changed("inputs") && !byInputs:
		return derivedKey{}, usage("--inputs needs --version")
	case values && !byTemplate:
		return derivedKey{}, usage("--set and --values need a template")
	case f.values == "-" && f.cart == "-":
		return derivedKey{}, usage("--values and --cart can't both be standard input")
	case byInputs:
		return f.deriveFromInputs(cmd)
	case byTemplate:
		return f.deriveFromTemplate(cmd)
	case flags.Changed("cart"):
		hash, err := f.cartHash(cmd)
		return derivedKey{Key: hash, CartHash: hash}, err
	}
	return derivedKey{}, usage("one of --version, --template, --template-name and --cart is needed")
}

func (f *deriveFlags) deriveFromInputs(cmd *cobra.Command) (derivedKey, error) {
	if f.version == "" {
		return derivedKey{}, usage("--version is empty")
	}
	text, err := readAll(cmd, f.inputs)
	if err != nil {
		return derivedKey{}, err
	}
	key, err := semel.DeriveKey(f.version, json.RawMessage(text))
	if err != nil {
		return derivedKey{}, fmt.Errorf("%s: %w", inputName(f.inputs), err)
	}
	found := map[string]string{}
	suspects(text, found)
	for _, name := range slices.Sorted(maps.Keys(found)) { // only a warning: the user chose the inputs
		fmt.Fprintf(cmd.ErrOrStderr(), "semel: warning: the input %q may not belong in a key: %s\n", name, found[name])
	}
	return derivedKey{Key: key, Version: f.version}, nil
}

// suspects finds the members of JSON inputs, at any depth, that may not belong in a key, by their
// names.
func suspects(inputs []byte, found map[string]string) {
	for name, v := range jsonscan.Members(inputs) {
		if p, bad := keytemplate.LintName(string(name)); bad {
			found[p.Field] = p.Message
		}
		suspects(v, found)
	}
	for v := range jsonscan.Items(inputs) {
		suspects(v, found)
	}
}

func (f *deriveFlags) deriveFromTemplate(cmd *cobra.Command) (derivedKey, error) {
	format, err := f.format()
	if err != nil {
		return derivedKey{}, err
	}
	text := format.Template
	if problems := keytemplate.Lint(text); len(problems) > 0 {
		printProblems(cmd.ErrOrStderr(), "template", text, problems)
		return derivedKey{}, errReported
	}
	key := derivedKey{Template: text}
	values, err := f.templateValues(cmd)
	if err != nil {
		return derivedKey{}, err
	}
	if f.cart != "" {
		if key.CartHash, err = f.cartHash(cmd); err != nil {
			return derivedKey{}, err
		}
		values["cart_hash"] = key.CartHash
	}
	made, err := format.Key(values)
	if err != nil {
		return derivedKey{}, fmt.Errorf("%w; --set FIELD=VALUE gives a field its value", errors.Unwrap(err)) // the user knows the template
	}
	if key.Key = made.Text; format.Scope != "" {
		key.Scope = made.Scope
	}
	return key, nil
}

// format is the template given, which has no scope, or the built-in format of the name
// given.
func (f *deriveFlags) format() (commerce.Format, error) {
	if f.templateName == "" {
		return commerce.Format{Template: f.template}, nil
	}
	if format, ok := commerce.FormatByName(f.templateName); ok {
		return format, nil
	}
	var names []string
	for _, format := range commerce.Formats() {
		names = append(names, format.Name)
	}
	return commerce.Format{}, usage("there is no built-in template %q%s", f.templateName, spelling.Suggest(f.templateName, names))
}

// templateValues joins the values of the file with those of --set, which win.
func (f *deriveFlags) templateValues(cmd *cobra.Command) (map[string]string, error) {
	values := map[string]string{}
	if f.values != "" {
		text, err := readAll(cmd, f.values)
		if err != nil {
			return nil, err
		}
		if values, err = keytemplate.Values(text); err != nil {
			return nil, fmt.Errorf("%s: %w", inputName(f.values), err)
		}
	}
	for _, assignment := range f.set {
		name, value, ok := strings.Cut(assignment, "=")
		if !ok {
			return nil, usage("--set %q is not of the form field=value", assignment)
		}
		values[name] = value
	}
	return values, nil
}

func (f *deriveFlags) cartHash(cmd *cobra.Command) (string, error) {
	text, err := readAll(cmd, f.cart)
	if err != nil {
		return "", err
	}
	hash, err := keytemplate.CartHash(strings.NewReader(string(text)))
	if err != nil {
		return "", fmt.Errorf("%s: %w", inputName(f.cart), err)
	}
	return hash, nil
}

// readAll reads a file, or standard input for "-".
func readAll(cmd *cobra.Command, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(cmd.InOrStdin())
	}
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, noFile(name)
	}
	return text, err
}

func inputName(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}
