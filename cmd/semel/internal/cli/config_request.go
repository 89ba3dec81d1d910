package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel/door/activitypub"
	"github.com/semelhq/semel/door/forrst"
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

// explainRequest says which part of a configuration handles a captured request, in the
// order in which the service asks them.
func explainRequest(c *config.Config, r *webhook.Captured, now time.Time) (*explainedRequest, error) {
	u, err := url.ParseRequestURI(r.Target)
	if err != nil {
		return nil, fmt.Errorf("the target %q of the request is not one", r.Target)
	}
	req := &http.Request{Method: r.Method, URL: u, RequestURI: r.Target, Host: r.Header.Get("Host"), Header: r.Header}
	switch path := u.Path; {
	case strings.HasPrefix(path, "/semel/"):
		return &explainedRequest{Door: "service"}, nil
	case c.Commands.Registry != "" && (path == "/v1/commands" || strings.HasPrefix(path, "/v1/commands/")):
		return &explainedRequest{Door: "commands", Setting: "commands"}, nil
	case c.Commands.WhatsApp.On() && path == c.Commands.WhatsApp.Path:
		return &explainedRequest{Door: "whatsapp", Setting: "commands.whatsapp", Upstream: c.Commands.WhatsApp.MapperURL}, nil
	}
	if i := slices.IndexFunc(c.Webhooks, func(w config.Webhook) bool { return w.Path == u.Path }); i >= 0 {
		return explainWebhook(&c.Webhooks[i], fmt.Sprintf("webhooks[%d]", i), r, now)
	}
	if i := slices.IndexFunc(c.ActivityPub, func(a config.ActivityPub) bool { return a.Serves(u.Path) }); i >= 0 {
		return explainActivity(&c.ActivityPub[i], fmt.Sprintf("activitypub[%d]", i), req, r.Body)
	}
	if i := slices.IndexFunc(c.Forrst, func(f config.Forrst) bool { return f.Path == u.Path }); i >= 0 {
		return explainForrst(c, i, r)
	}
	mux, routes := http.NewServeMux(), map[string]int{}
	for i := range c.Routes {
		mux.HandleFunc(c.Routes[i].Match, func(http.ResponseWriter, *http.Request) {})
		routes[c.Routes[i].Match] = i
	}
	if _, pattern := mux.Handler(req); pattern != "" {
		if i, ok := routes[pattern]; ok {
			return explainRoute(&c.Routes[i], fmt.Sprintf("routes[%d]", i), req), nil
		}
	}
	return &explainedRequest{Door: "api", Setting: "api"}, nil
}

func explainWebhook(w *config.Webhook, setting string, r *webhook.Captured, now time.Time) (*explainedRequest, error) {
	out := &explainedRequest{Door: "webhook", Setting: setting, Operation: webhook.OperationPrefix + w.Name, Upstream: w.Upstream}
	if r.Method != http.MethodPost {
		return out, nil
	}
	opts, err := w.Verifier()
	if err != nil {
		return nil, err
	}
	opts.Now = func() time.Time { return now }
	v, err := webhook.NewVerifier(opts)
	if err != nil {
		return nil, err
	}
	found := verified(opts.Source, v.Diagnose(&r.Delivery, opts.Secrets))
	out.Webhook = &found
	return out, nil
}

func explainActivity(a *config.ActivityPub, setting string, req *http.Request, body []byte) (*explainedRequest, error) {
	x, err := service.ExplainActivity(a, req, body)
	if err != nil {
		return nil, err
	}
	return &explainedRequest{
		Door: "activitypub", Setting: setting, Operation: activitypub.OperationPrefix + a.Name, Upstream: a.Upstream,
		Key: x.Key, ActivityPub: &x,
	}, nil
}

func explainForrst(c *config.Config, i int, r *webhook.Captured) (*explainedRequest, error) {
	out := &explainedRequest{Door: "forrst", Setting: fmt.Sprintf("forrst[%d]", i), Upstream: c.Forrst[i].Upstream}
	if r.Method != http.MethodPost {
		return out, nil
	}
	x, _, err := service.ExplainForrst(c, c.Forrst[i].Path, r.Body)
	if err != nil {
		return nil, err
	}
	out.Operation, out.Key, out.Forrst = x.Operation, x.Key, &x
	return out, nil
}

// unguarded are the methods that routes pass on by default.
var unguarded = []string{"GET", "HEAD", "OPTIONS", "TRACE"}

func explainRoute(r *config.Route, setting string, req *http.Request) *explainedRequest {
	out := &explainedRequest{Door: "route", Setting: setting, Operation: r.Operation, Upstream: r.Upstream, Key: req.Header.Get(r.KeyHeader)}
	guards := slices.Contains(r.Methods, req.Method) || len(r.Methods) == 0 && !slices.Contains(unguarded, req.Method)
	switch {
	case r.Mode != "enforce":
		out.Guarded = "no: mode is " + r.Mode
	case !guards:
		out.Guarded = "no: " + req.Method + " is passed on"
	case out.Key != "":
		out.Guarded = "yes"
	case r.Key == "required":
		out.Guarded = "refused: there is no " + r.KeyHeader
	default:
		out.Guarded = "no: there is no " + r.KeyHeader
	}
	return out
}

// reportRequest reads a captured request and prints what handles it.
func reportRequest(cmd *cobra.Command, c *config.Config, name string, asJSON bool) error {
	captured, err := readCapture(cmd, name)
	if err != nil {
		return err
	}
	out, err := explainRequest(c, captured, time.Now())
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), out)
	}
	w := cmd.OutOrStdout()
	for _, line := range [][2]string{
		{"door", out.Door}, {"setting", out.Setting}, {"operation", out.Operation},
		{"upstream", out.Upstream}, {"guarded", out.Guarded}, {"key", out.Key},
	} {
		if line[1] != "" {
			fmt.Fprintf(w, "%-10s %s\n", line[0], printable(line[1]))
		}
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

func printActivity(w io.Writer, x *activitypub.Explanation) {
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(w, "%-10s %s\n", label, printable(text))
		}
	}
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
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(w, "%-10s %s\n", label, printable(text))
		}
	}
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
