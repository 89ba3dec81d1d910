package check

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Exchange is one delivery, without credentials and the rest of long bodies.
type Exchange struct {
	// At and Took are in seconds, from the start of the check.
	At      float64 `json:"at"`
	Took    float64 `json:"took"`
	Request string  `json:"request"`
	Answer  string  `json:"answer"`
	Cut     cut     `json:"cut,omitempty"` // where the client left

	key, curl string
}

// Bounds on the bytes of a body, and on the exchanges and the lines to reproduce a probe.
const shownBody, shown, longest = 400, 24, 10

// secret are headers that aren't shown.
var secret = map[string]bool{"Authorization": true, "Proxy-Authorization": true, "Cookie": true, "Set-Cookie": true, "X-Api-Key": true, "Api-Key": true, "X-Auth-Token": true}

// record keeps an exchange, also as a command line with variables in place of credentials.
func (j *judge) record(r *http.Request, c call, at cut, a Answer) {
	args := []string{"curl -si -X", r.Method, quoted(r.URL.String())}
	if a.Err == nil && at != halfClosed {
		at = nowhere // the answer was faster
	} else if at != nowhere {
		args = append(args, "-m 0.05")
	}
	for _, name := range sortedKeys(r.Header) {
		for _, v := range r.Header[name] {
			arg := quoted(name + ": " + v)
			if secret[name] {
				variable := "$" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
				if v != j.requests[""].header.Get(name) {
					variable += "_OF_ANOTHER"
				}
				arg = `"` + name + ": " + variable + `"`
			}
			args = append(args, "-H "+arg)
		}
	}
	if c.body != "" {
		args = append(args, "-d "+quoted(c.body))
	}
	x := Exchange{
		At: a.began.Sub(j.began).Seconds(), Took: a.ended.Sub(a.began).Seconds(), Cut: at, key: c.key, curl: strings.Join(args, " "),
		Request: message(r.Method+" "+r.URL.RequestURI(), r.Header, c.body), Answer: a.String(),
	}
	if a.Err == nil {
		x.Answer = message(a.String(), a.Header, a.Body)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.exchanges = append(j.exchanges, x)
}

// message is a request or an answer as people read it.
func message(line string, h http.Header, body string) string {
	var b strings.Builder
	_ = h.WriteSubset(&b, secret) // never fails
	if len(body) > shownBody {
		body = fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(body[:shownBody], ""), len(body))
	}
	return line + "\n" + strings.ReplaceAll(b.String(), "\r", "") + "\n" + body
}

// quoted quotes a text for a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// reproduction is a transcript as lines for a shell, one for equal deliveries in a row.
func reproduction(all []Exchange) (lines []string) {
	var keys, made []string
	overlaps := func(i int) bool { return i+1 < len(all) && all[i+1].At < all[i].At+all[i].Took }
	for i := 0; i < len(all) && len(lines) < longest-1; {
		n, line := 1, all[i].curl
		for i+n < len(all) && all[i+n].curl == line {
			n++
		}
		switch {
		case n > 1 && overlaps(i):
			line = fmt.Sprintf("for i in $(seq %d); do %s & done; wait", n, line)
		case n > 1:
			line = fmt.Sprintf("for i in $(seq %d); do %s; done", n, line)
		case overlaps(i):
			line += " &"
		}
		if k := all[i].key; k != "" && !slices.Contains(keys, k) {
			keys = append(keys, k)
			made = append(made, fmt.Sprintf("key%d=$(uuidgen)", len(keys)))
		}
		lines, i = append(lines, line), i+n
	}
	for n, k := range keys {
		for l := range lines {
			lines[l] = strings.ReplaceAll(lines[l], k, fmt.Sprintf(`'"$key%d"'`, n+1))
		}
	}
	return append([]string{strings.Join(made, "; ")}, lines...)
}
