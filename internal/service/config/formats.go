package config

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/semelhq/semel/internal/strictyaml"
)

// formats are what the tag format of a setting may name.
var formats = map[string]strictyaml.Format{
	"actor":    pattern(`^[A-Za-z0-9._~@-]{1,100}$`, "%q is not the name of an actor", "write the name alone, such as alice"),
	"h2c":      func(text string) (mistake, hint string) { return urlMistake(text, "http", "https", "h2c") },
	"header":   pattern("^[A-Za-z0-9!#$%&'*+.^_`|~-]*$", "%q is not the name of a header", "use letters, digits and dashes"),
	"host":     pattern(hostName, "%q is not a host name", "write a name without scheme and port"),
	"http":     func(text string) (mistake, hint string) { return urlMistake(text, "http", "https") },
	"inbox":    pattern(`^[a-z0-9]+(-[a-z0-9]+)*$`, "%q is not the name of an inbox", "write small letters, digits and -"),
	"instance": pattern(instanceHost, "%q is not a host in small letters", "write such as social.example, *.example or *"),
	"urn":      pattern(`^urn:`, "%q is not a URN", "write such as urn:forrst:ext:dry-run"),
}

const (
	hostName     = `^[A-Za-z0-9]([A-Za-z0-9-]{0,62}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,62}[A-Za-z0-9])?)*$`
	instanceHost = `^(\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*(:[0-9]+)?|\[[0-9a-f:]+\](:[0-9]+)?)$`
)

func pattern(expression, mistake, hint string) strictyaml.Format {
	matches := regexp.MustCompile(expression).MatchString
	return func(text string) (string, string) {
		if matches(text) {
			return "", ""
		}
		return fmt.Sprintf(mistake, text), hint
	}
}

// is checks a text that no tag is about; it may be empty.
func (v *validator) is(path, format, text string) {
	if mistake, hint := formats[format](text); mistake != "" && text != "" {
		v.Add(path, mistake, hint)
	}
}

// urlMistake says why Semel can't send requests to a URL. The value itself may be a secret from
// the environment, so it is in no message.
func urlMistake(text string, schemes ...string) (mistake, hint string) {
	const such = "write such as http://127.0.0.1:9000"
	u, err := url.Parse(text)
	if err != nil {
		return "the value is not a URL", such
	}
	allowed := strings.Join(schemes, ", ")
	switch {
	case u.User != nil:
		return "a URL with a password would be written to logs", "let callers send their own credential"
	case u.Scheme == "" || u.Opaque != "":
		return fmt.Sprintf("the value has no scheme (%s)", allowed), such
	case !slices.Contains(schemes, u.Scheme):
		return fmt.Sprintf("the scheme %q is not one of %s", u.Scheme, allowed), strictyaml.DidYouMean(u.Scheme, schemes)
	case u.Hostname() == "":
		return "the value names no host", such
	case u.Fragment != "":
		return "a fragment is never sent", ""
	case u.Port() != "":
		if n, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || n == 0 {
			return fmt.Sprintf("the port %q is not a number from 1 to 65535", u.Port()), ""
		}
	}
	return "", ""
}
