package check

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/semelhq/semel/internal/pasted"
)

// Sections are the names that requests in a file may have, in a line that begins with ###, and
// what such a request is. The one before the first such line is the one that has an effect.
var Sections = map[string]string{
	"other":        "with the same target and another payload (by default with one more digit in the first number of the body)",
	"slow":         "that takes half a second or more (by default the first one)",
	"other caller": "with somebody else's credential (by default an Authorization that isn't valid)",
	"renewed":      "with a new credential of the same caller",
	"elsewhere":    "for another path (by default one that there isn't)",
	"query":        "with a query that changes what is done",
	"rejected":     "that the service answers with 4xx",
	"failing":      "that the service answers with 5xx",
	"big":          "that has a big answer",
	"streamed":     "that has a streamed answer",
}

// unique stands for a text that is new for each call, and the same in its deliveries.
const unique = "{{unique}}"

// request is a request as the user gave it.
type request struct {
	method, target string
	header         http.Header
	body           string
}

var (
	section = regexp.MustCompile(`(?m)^###[ \t]*(.*?)[ \t]*\r?$\n?`)
	number  = regexp.MustCompile(`(":\s*|^[^{]*?=)(-?\d+)([,}&\s]|$)`) // a member's or a field's value
)

// parseRequests reads the requests by their names, and derives missing ones from the first.
func parseRequests(text string, base *url.URL) (map[string]request, error) {
	if strings.TrimSpace(text) == "" {
		text = "POST " + base.RequestURI() + "\nContent-Type: application/json\n\n" + `{"amount":1200,"currency":"EUR","reference":"` + unique + `"}`
	}
	all, names := map[string]request{}, []string{""}
	for _, m := range section.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	for i, part := range section.Split(text, -1) {
		name := names[i]
		if _, twice := all[name]; twice || name != "" && Sections[name] == "" {
			return nil, wrong("the request %q is there twice, or isn't one of %s", name, strings.Join(sortedKeys(Sections), ", "))
		}
		r, body, err := pasted.Parse(part)
		if err != nil {
			return nil, wrong("the request %q: %v", name, err)
		}
		r.Header.Del(keyHeader) // each probe makes its own
		text := string(body)
		if t := strings.TrimRight(text, "\r\n"); i < len(names)-1 || json.Valid([]byte(t)) {
			text = t // the end of the section isn't that of the body
		}
		all[name] = request{r.Method, r.RequestURI, r.Header, text}
	}
	first := all[""]
	if first.method != http.MethodPost && first.method != http.MethodPatch {
		return nil, wrong("%s may be repeated without a key, so a second effect would be no fault: give a POST or a PATCH", first.method)
	}
	derive(all, "slow", first)
	other, elsewhere, stranger := first, first, first
	if at := number.FindStringSubmatchIndex(first.body); at != nil {
		other.body = first.body[:at[4]] + "1" + strings.TrimPrefix(first.body[at[4]:], "-")
		derive(all, "other", other)
	}
	path, query, _ := strings.Cut(first.target, "?")
	elsewhere.target = strings.TrimSuffix(path, "/") + "/semel-check-elsewhere?" + query
	derive(all, "elsewhere", elsewhere)
	if first.header.Get("Authorization") != "" {
		stranger.header = first.header.Clone()
		stranger.header.Set("Authorization", "Bearer semel-check-another-caller")
		derive(all, "other caller", stranger)
	}
	return all, nil
}

// derive adds a request that the user has not given.
func derive(all map[string]request, name string, r request) {
	if _, given := all[name]; !given {
		all[name] = r
	}
}
