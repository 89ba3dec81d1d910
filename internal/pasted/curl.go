package pasted

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// takesValue are the options of curl that have a value, by their short names. Other options
// in short form have none.
const takesValue = "XHdFubAeoTmwxEKCcDPQrtUyYz"

// ignored are further options in long form whose value says nothing about the request.
var ignored = map[string]bool{
	"output": true, "max-time": true, "connect-timeout": true, "write-out": true, "proxy": true, "cacert": true, "capath": true, "cert": true, "key": true,
	"resolve": true, "connect-to": true, "retry": true, "retry-delay": true, "retry-max-time": true, "cookie-jar": true, "dump-header": true, "interface": true,
	"limit-rate": true, "max-redirs": true, "noproxy": true, "pass": true, "ciphers": true, "unix-socket": true, "trace": true, "trace-ascii": true, "stderr": true,
}

// long are the long names of options in short form.
var long = map[string]string{
	"request": "X", "header": "H", "data": "d", "data-ascii": "d", "user": "u", "cookie": "b", "user-agent": "A", "referer": "e", "form": "F", "upload-file": "T", "config": "K",
	"get": "G", "head": "I",
}

// curl is a command that is read.
type curl struct {
	method, target string
	header         http.Header
	without        []string // headers that are taken out
	data           []string
	media          string // of the data
	get, hasData   bool
	err            error
}

// parseCurl reads a curl command, as browsers and documents have it.
func parseCurl(text string) (*http.Request, []byte, error) {
	args, err := words(text)
	if err != nil {
		return nil, nil, err
	}
	c := &curl{header: http.Header{}}
	for args = args[1:]; len(args) > 0 && c.err == nil; {
		arg := args[0]
		args = args[1:]
		next := func(inline string, has bool) (value string) {
			switch {
			case has:
				return inline
			case len(args) == 0:
				c.err = fmt.Errorf("the option %.40s needs a value", arg)
				return ""
			}
			value, args = args[0], args[1:]
			return value
		}
		switch {
		case strings.HasPrefix(arg, "--") && len(arg) > 2:
			name, inline, has := strings.Cut(arg[2:], "=")
			c.long(name, func() string { return next(inline, has) })
		case strings.HasPrefix(arg, "-") && len(arg) > 1:
			for i := 1; i < len(arg); i++ {
				if strings.IndexByte(takesValue, arg[i]) < 0 {
					c.option(arg[i:i+1], "")
					continue
				}
				c.option(arg[i:i+1], next(arg[i+1:], i+1 < len(arg)))
				break
			}
		case c.target != "":
			c.err = errors.New("the command has more than one address")
		default:
			c.target = arg
		}
	}
	if c.err != nil {
		return nil, nil, c.err
	}
	return c.request()
}

// long reads an option in long form.
func (c *curl) long(name string, value func() string) {
	short := long[name]
	switch {
	case short != "" && strings.Contains(takesValue, short):
		c.option(short, value())
	case short != "":
		c.option(short, "")
	case name == "data-raw":
		c.add(value(), "application/x-www-form-urlencoded", false)
	case name == "data-binary":
		c.add(value(), "application/x-www-form-urlencoded", true)
	case name == "data-urlencode":
		field, text, named := strings.Cut(value(), "=")
		if text = url.QueryEscape(text); !named {
			text = url.QueryEscape(field)
		} else if field != "" {
			text = field + "=" + text
		}
		c.add(text, "application/x-www-form-urlencoded", true)
	case name == "json":
		c.add(value(), "application/json", true)
	case name == "url":
		c.target = value()
	case name == "oauth2-bearer":
		c.header.Set("Authorization", "Bearer "+value())
	case ignored[name]:
		value()
	}
}

// option reads an option in short form.
func (c *curl) option(name, value string) {
	if c.err != nil {
		return
	}
	switch name {
	case "X":
		c.method = value
	case "H":
		c.field(value)
	case "d":
		c.add(value, "application/x-www-form-urlencoded", true)
	case "u":
		c.header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(value)))
	case "b":
		c.header.Set("Cookie", value)
	case "A":
		c.header.Set("User-Agent", value)
	case "e":
		c.header.Set("Referer", value)
	case "G":
		c.get = true
	case "I":
		c.method = http.MethodHead
	case "F":
		c.err = errors.New("the parts of a form (-F) aren't read: paste the request as it goes over the wire")
	case "T", "K":
		c.err = fmt.Errorf("the option -%s reads a file, which isn't here", name)
	}
}

// field reads the value of -H: "Name: value", "Name:", which takes one out, or "Name;",
// which is an empty one.
func (c *curl) field(text string) {
	name, value, ok := strings.Cut(text, ":")
	if empty, has := strings.CutSuffix(text, ";"); !ok && has {
		name, ok = empty, true
	} else if ok && strings.TrimSpace(value) == "" {
		c.without = append(c.without, textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)))
		return
	}
	if name = strings.TrimSpace(name); !ok || !isToken(name) || strings.ContainsAny(value, "\r\n\x00") {
		c.err = fmt.Errorf("%.60q isn't a header", text)
		return
	}
	c.header.Add(name, strings.TrimSpace(value))
}

// add adds to the body. A value that begins with @ names a file where that means something.
func (c *curl) add(value, media string, files bool) {
	if files && strings.HasPrefix(value, "@") {
		c.err = errors.New("the body is in a file, which isn't here: put its text in place of its name")
		return
	}
	c.hasData, c.data = true, append(c.data, value)
	if c.media == "" || media == "application/json" {
		c.media = media
	}
}

func (c *curl) request() (*http.Request, []byte, error) {
	if c.target == "" {
		return nil, nil, errors.New("the command has no address")
	}
	if !strings.Contains(c.target, "://") && !strings.HasPrefix(c.target, "/") {
		c.target = "http://" + c.target
	}
	c.target, _, _ = strings.Cut(c.target, "#")
	method, join := http.MethodGet, "&"
	if c.media == "application/json" {
		join = ""
	}
	body := strings.Join(c.data, join)
	switch {
	case c.hasData && c.get:
		mark := "?"
		if strings.Contains(c.target, "?") {
			mark = "&"
		}
		c.target, body = c.target+mark+body, ""
	case c.hasData:
		method = http.MethodPost
		c.standard("Content-Type", c.media)
		if c.media == "application/json" {
			c.standard("Accept", c.media)
		}
	}
	if c.method != "" {
		method = c.method
	}
	c.standard("Accept", "*/*")
	for _, name := range c.without {
		c.header.Del(name)
	}
	return request(method, c.target, c.header, []byte(body))
}

// standard sets a header that curl sends by itself.
func (c *curl) standard(name, value string) {
	if c.header.Get(name) == "" {
		c.header.Set(name, value)
	}
}

// words divides a command as a shell does: quotes, escapes and lines that go on, and nothing
// that a shell would run or put in.
func words(text string) (list []string, err error) {
	var word strings.Builder
	in := false
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			skip := 2
			if strings.HasPrefix(text[i+1:], "\r\n") {
				skip = 3
			} else if text[i+1] != '\n' {
				word.WriteByte(text[i+1])
				in = true
			}
			i += skip
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			if in {
				list = append(list, word.String())
				word.Reset()
			}
			if in = false; c == '\n' {
				return list, rest(text[i:])
			}
			i++
		case c == '\'' || c == '"' || c == '$' && strings.HasPrefix(text[i+1:], "'"):
			n, err := quoted(&word, text[i:])
			if err != nil {
				return nil, err
			}
			in = true
			i += n
		case !in && c == '#', c == '|', c == ';', c == '&', c == '>', c == '<':
			return nil, fmt.Errorf("the command has a %c outside of quotes: paste the curl command alone", c)
		case c == '$', c == '`':
			return nil, fmt.Errorf("the command has a %c, which a shell replaces: put the value in its place", c)
		default:
			word.WriteByte(c)
			in = true
			i++
		}
	}
	if in {
		list = append(list, word.String())
	}
	return list, nil
}

// rest reports what follows the line of the command.
func rest(text string) error {
	if strings.TrimSpace(text) != "" {
		return errors.New("the command goes on after its line: end lines that go on with a backslash, and paste one command alone")
	}
	return nil
}

// quoted reads what is in quotes at the beginning of text, and returns how long that is.
func quoted(word *strings.Builder, text string) (n int, err error) {
	escapes := text[0] == '$' // $'...'
	if escapes {
		n++
	}
	quote := text[n]
	for n++; n < len(text); {
		c := text[n]
		switch {
		case c == quote:
			return n + 1, nil
		case c == '\\' && escapes:
			used, err := escape(word, text[n+1:])
			if err != nil {
				return 0, err
			}
			n += 1 + used
		case c == '\\' && quote == '"' && n+1 < len(text) && strings.IndexByte("\"\\$`\n", text[n+1]) >= 0:
			if text[n+1] != '\n' {
				word.WriteByte(text[n+1])
			}
			n += 2
		case quote == '"' && (c == '`' || c == '$' && n+1 < len(text) && (text[n+1] == '{' || text[n+1] == '(' || text[n+1] == '_' || isLetter(text[n+1]))):
			return 0, fmt.Errorf("the command has a %c in double quotes, which a shell replaces: put the value in its place", c)
		default:
			word.WriteByte(c)
			n++
		}
	}
	return 0, errors.New("a quote is never closed")
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// simple are the escapes of one letter in $'...'.
var simple = map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', '\\': '\\', '\'': '\'', '"': '"', 'a': '\a', 'b': '\b', 'f': '\f', 'v': '\v', 'e': 0x1b}

// escape reads what follows a backslash in $'...', and returns how long that is.
func escape(word *strings.Builder, text string) (int, error) {
	if text == "" {
		return 0, errors.New("a quote is never closed")
	}
	if c, ok := simple[text[0]]; ok {
		word.WriteByte(c)
		return 1, nil
	}
	most := map[byte]int{'x': 2, 'u': 4, 'U': 8}[text[0]]
	n := 1
	for n < len(text) && n <= most && strings.IndexByte("0123456789abcdefABCDEF", text[n]) >= 0 {
		n++
	}
	v, err := strconv.ParseUint(text[1:n], 16, 32)
	if most == 0 || err != nil || v > utf8.MaxRune {
		return 0, fmt.Errorf("the escape \\%c isn't known", text[0])
	}
	if most == 2 {
		word.WriteByte(byte(v))
	} else {
		word.WriteRune(rune(v))
	}
	return n, nil
}
