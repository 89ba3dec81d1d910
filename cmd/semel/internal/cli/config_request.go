package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/door/activitypub"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
)

// explainedRequest is what semel config explain --request --json prints.
type explainedRequest struct {
	// Door handles the request: webhook, activitypub, forrst, whatsapp, commands, route, api
	// or service.
	Door string `json:"door"`
	// Setting is where the configuration says so.
	Setting string `json:"setting,omitempty"`
	// Operation is that of the call, and Upstream where it goes.
	Operation string `json:"operation,omitempty"`
	Upstream  string `json:"upstream,omitempty"`
	// Guarded says what a route does with it, and Key what names the call.
	Guarded string           `json:"guarded,omitempty"`
	Key     string           `json:"key,omitempty"`
	Webhook *verifiedWebhook `json:"webhook,omitempty"`
	// Forrst says what a service over Forrst makes of the request.
	Forrst *forrst.Explanation `json:"forrst,omitempty"`
	// ActivityPub says what an inbox makes of the request.
	ActivityPub *activitypub.Explanation `json:"activitypub,omitempty"`
}

// explainRequest says which part of a configuration handles a captured request.
func explainRequest(c *config.Config, captured *webhook.Captured) (*explainedRequest, error) {
	u, err := url.ParseRequestURI(captured.Target)
	if err != nil {
		return nil, fmt.Errorf("the target %q of the request is not one", captured.Target)
	}
	r := &http.Request{Method: captured.Method, URL: u, RequestURI: captured.Target, Host: captured.Header.Get("Host"), Header: captured.Header, ContentLength: int64(len(captured.Body))}
	found, err := service.Explain(c, r, captured.Body)
	if err != nil {
		return nil, err
	}
	out := &explainedRequest{Door: found.Door, Setting: found.Setting, Operation: found.Operation, Upstream: found.Upstream, Key: found.Key}
	switch found.Outcome {
	case "guarded":
		out.Guarded = "yes"
	case "passed":
		out.Guarded = "no: " + found.Why
	case "refused":
		out.Guarded = "refused: " + found.Why
	}
	switch {
	case found.Door == ids.Name:
		out.Door = "commands"
	case found.Door == semelhttp.Name:
		out.Door = "route"
	case found.Rule == "service":
		out.Door = "service"
	case found.Door == "": // the API says that nothing is there
		out.Door, out.Setting = "api", "api"
	}
	switch x := found.Details.(type) {
	case service.WebhookDetails:
		shown := verified(x.Source, x.Diagnosis)
		out.Webhook = &shown
	case *forrst.Explanation:
		out.Forrst = x
	case *activitypub.Explanation:
		out.ActivityPub = x
	}
	return out, nil
}

// reportRequest reads a captured request and prints what handles it.
func reportRequest(cmd *cobra.Command, c *config.Config, name string) error {
	captured, err := readCapture(cmd, name)
	if err != nil {
		return err
	}
	out, err := explainRequest(c, captured)
	if err != nil {
		return err
	}
	return printReport(cmd, out, out.print, false)
}

// print shows people what handles a request.
func (out *explainedRequest) print(w io.Writer) error {
	for _, line := range [][2]string{
		{"door", out.Door}, {"setting", out.Setting}, {"operation", out.Operation},
		{"upstream", out.Upstream}, {"guarded", out.Guarded}, {"key", out.Key},
	} {
		printFact(w, line[0], line[1])
	}
	switch {
	case out.Webhook != nil:
		return out.Webhook.print(w)
	case out.Forrst != nil:
		printForrst(w, out.Forrst)
	case out.ActivityPub != nil:
		printActivity(w, out.ActivityPub)
	}
	return nil
}

// printFact prints what is known under a label, unless that is nothing.
func printFact(w io.Writer, label, text string) {
	if text != "" {
		fmt.Fprintf(w, "%-10s %s\n", label, printable(text))
	}
}

func printActivity(w io.Writer, x *activitypub.Explanation) {
	line := func(label, text string) { printFact(w, label, text) }
	line("activity", x.Activity)
	line("type", x.Type)
	line("actor", x.Actor)
	for _, name := range x.Inboxes {
		line("inbox", cmp.Or(name, "shared"))
	}
	line("digest", x.Digest)
	switch {
	case x.Signature != "" && x.Unproved:
		line("signature", x.Signature+", right if the key is: keys are not fetched here")
	case x.Signature != "":
		line("signature", x.Signature)
	case x.Needed:
		line("signature", "none, and one is needed")
	default:
		line("signature", "none, and none is needed")
	}
	for _, id := range x.KeyIDs {
		line("key id", id)
	}
	if x.Refused != "" {
		line("refused", fmt.Sprintf("with status %d: %s", x.Status, x.Refused))
	}
}

func printForrst(w io.Writer, x *forrst.Explanation) {
	line := func(label, text string) { printFact(w, label, text) }
	line("id", x.ID)
	line("function", strings.TrimSuffix(x.Function+" "+x.Version, " "))
	switch {
	case x.Errors != nil:
		line("refused", fmt.Sprintf("with status %d", x.Status))
		for _, e := range x.Errors {
			line("because", e.Error())
		}
	case x.Scope == "":
		line("recorded", "nothing")
	default:
		if x.Key == "" {
			line("key", "none: it is a call of its own")
		}
		line("scope", x.Scope)
		line("kept for", fmt.Sprintf("%d %ss", x.KeptFor.Value, x.KeptFor.Unit))
		line("arguments", string(x.Arguments))
	}
}
