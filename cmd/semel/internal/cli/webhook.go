package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/internal/service/config"
)

func newWebhook() *cobra.Command {
	return group(&cobra.Command{Use: "webhook", Short: "Check captured webhooks, and show how senders sign theirs"},
		newWebhookVerify(), newWebhookSource())
}

func newWebhookSource() *cobra.Command {
	return &cobra.Command{
		Use:   "source [NAME]",
		Short: "Print the declaration of a built-in source, or list their names",
		Long: `Print the YAML file of a built-in source: where its signature is, what it signs, and
what identifies an event. Use it as the start of your own. Without a name, list the
names.`,
		Example: `  semel webhook source
  semel webhook source shopify > own.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.Join(webhook.Sources(), "\n"))
				return err
			}
			text, err := webhook.Text(args[0])
			if err != nil {
				return usage("%w", err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}

// verifiedWebhook is what semel webhook verify --json prints.
type verifiedWebhook struct {
	Valid   bool            `json:"valid"`
	Source  string          `json:"source"`
	Code    webhook.Code    `json:"code,omitempty"`
	Problem string          `json:"problem,omitempty"`
	Hints   []string        `json:"hints,omitempty"`
	Events  []verifiedEvent `json:"events,omitempty"`
	// Unsigned lists the parts of an event's identity that the signature doesn't cover.
	Unsigned []string `json:"unsigned,omitempty"`
}

type verifiedEvent struct {
	Key     string           `json:"key"`
	Scope   string           `json:"scope,omitempty"`
	Type    string           `json:"type,omitempty"`
	Bytes   int              `json:"bytes"`
	Payment *webhook.Payment `json:"payment,omitempty"`
}

func newWebhookVerify() *cobra.Command {
	var at time.Time
	var w config.Webhook
	cmd := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Check a captured delivery, and say why it is refused",
		Long: `Check a captured delivery, and say why it is refused: the signature, its time,
and the identity of its events. If the signature is wrong, this tries the usual
mistakes: an added line end, reformatted JSON, a secret in another form.
It never prints secrets or correct signatures.

FILE has the request as received: its first line, its header, an empty line, and
the body, unchanged. It defaults to -, which is standard input. To check
the webhook of a configuration, use 'semel config explain --request'.

The JSON has valid and source; events, each with key, bytes, and scope, type and
payment where they apply; or code, problem and hints; and unsigned, the parts of
an identity that the signature doesn't cover. The exit code is 1 if it is refused.`,
		Example: `  semel webhook verify --source github --secret-file github.secret delivery.http
  semel webhook verify --source github --secret-file github.secret --json - < delivery.http`,
		RunE: func(cmd *cobra.Command, args []string) error {
			captured, err := readCapture(cmd, cmp.Or(first(args), "-"))
			if err != nil {
				return err
			}
			if at.IsZero() {
				at = time.Now()
			}
			return verifyWebhook(cmd, &w, captured, at)
		},
	}
	cmd.Flags().StringVar(&w.Source, "source", "", "`name` of a built-in source, or the file of another")
	cmd.Flags().StringArrayVar(&w.SecretFiles, "secret-file", nil, "`file` with the secret; twice during a rotation")
	cmd.Flags().StringVar(&w.URL, "url", "", "`URL` that the sender posts to, if it signs that")
	cmd.Flags().StringVar(&w.Endpoint, "endpoint", "", "the sender's `name` for that URL, if it signs that")
	cmd.Flags().TimeVar(&at, "at", time.Time{}, []string{time.RFC3339}, "`time` at which the delivery came (default now)")
	return jsonFlag(cmd)
}

// verifyWebhook checks a captured delivery as a webhook does.
func verifyWebhook(cmd *cobra.Command, w *config.Webhook, captured *webhook.Captured, now time.Time) error {
	if w.Source == "" || len(w.SecretFiles) == 0 {
		return usage("give --source and --secret-file")
	}
	opts, err := w.Verifier()
	if err != nil {
		return usage("%w", err)
	}
	opts.Now = func() time.Time { return now }
	v, err := webhook.NewVerifier(opts)
	if err != nil {
		return err
	}
	out := verified(opts.Source, v.Diagnose(&captured.Delivery, opts.Secrets))
	return printReport(cmd, out, out.print, !out.Valid)
}

// readCapture reads a captured request from a file, or from standard input for "-".
func readCapture(cmd *cobra.Command, name string) (*webhook.Captured, error) {
	data, err := readAll(cmd, name)
	if err != nil {
		return nil, err
	}
	captured, err := webhook.ParseCapture(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", inputName(name), err)
	}
	return captured, nil
}

// verified is the printed form of a diagnosis.
func verified(source *webhook.Source, d webhook.Diagnosis) verifiedWebhook {
	out := verifiedWebhook{Valid: d.Refusal == nil, Source: source.Name, Hints: d.Hints, Unsigned: source.Unsigned()}
	for _, e := range d.Events {
		out.Events = append(out.Events, verifiedEvent{e.Key, e.Scope, e.Type, len(e.Body), e.Payment})
	}
	if d.Refusal != nil {
		out.Code, out.Problem = d.Refusal.Code, d.Refusal.Err.Error()
	}
	return out
}

// print shows a diagnosis to people.
func (v *verifiedWebhook) print(w io.Writer) error {
	line := func(name, value string) { printFact(w, name, value) }
	if !v.Valid {
		line("refused", string(v.Code)+": "+v.Problem)
		for _, hint := range v.Hints {
			line("hint", hint)
		}
		return nil
	}
	line("valid", v.Source)
	for _, e := range v.Events {
		line("key", e.Key)
		line("scope", e.Scope)
		line("type", e.Type)
		if e.Payment != nil {
			line("payment", e.Payment.ID+" "+e.Payment.On)
		}
	}
	for _, place := range v.Unsigned {
		line("unsigned", place+": whoever has this delivery can send it again with another value")
	}
	return nil
}
