package strictyaml

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// Error is one error in a file, or in values from elsewhere.
type Error struct {
	// File, Line and Column say where the error is. Lines and columns count from 1, and columns
	// count characters. They are 0 for a setting from elsewhere.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// From is the variable or the flag that the setting came from, such as "env
	// SEMEL_STORE_URL"; empty for the file.
	From string `json:"from,omitempty"`
	// Path names the setting, such as "routes[2].mode".
	Path string `json:"path,omitempty"`
	// Command names the command that the error belongs to, in registries of commands.
	Command string `json:"command,omitempty"`
	// Message describes the error.
	Message string `json:"message"`
	// Suggestion says what to write instead. It may be empty.
	Suggestion string `json:"suggestion,omitempty"`
	// Source is the line of the file, with secrets masked.
	Source string `json:"source,omitempty"`
}

// Error returns one line, without the source.
func (e *Error) Error() string {
	var parts []string
	switch {
	case e.Line > 0:
		parts = append(parts, fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column))
	case cmp.Or(e.From, e.File) != "":
		parts = append(parts, cmp.Or(e.From, e.File))
	}
	if e.Path != "" {
		parts = append(parts, e.Path)
	}
	text := strings.Join(append(parts, e.Message), ": ")
	if e.Suggestion != "" {
		text += "; " + e.Suggestion
	}
	return text
}

// Errors has all errors in the order of the file.
type Errors []*Error

// Error returns a line for each error, followed by the line of the file with a mark below the
// place.
func (es Errors) Error() string {
	var b strings.Builder
	for i, e := range es {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.Error())
		if e.Source != "" {
			number := fmt.Sprintf("%5d", e.Line)
			text, before := excerpt(e.Source, e.Column)
			fmt.Fprintf(&b, "\n%s | %s\n%s | %s^", number, text, strings.Repeat(" ", len(number)), strings.Repeat(" ", before))
		}
	}
	return b.String()
}

// Unwrap returns the single errors.
func (es Errors) Unwrap() []error {
	var list []error
	for _, e := range es {
		list = append(list, e)
	}
	return list
}

const excerptWidth = 100

// excerpt shortens a long line around a column, replaces control characters with spaces, and
// returns how many characters are before the column.
func excerpt(line string, column int) (text string, before int) {
	runes := []rune(line)
	for i, r := range runes {
		if r < ' ' || r == 0x7f {
			runes[i] = ' '
		}
	}
	before = min(max(column-1, 0), len(runes))
	if from := before - excerptWidth/2; len(runes) > excerptWidth && from > 0 {
		runes, before = runes[from:], before-from
	}
	if len(runes) > excerptWidth {
		runes = runes[:excerptWidth]
	}
	return strings.TrimRight(string(runes), " "), before
}

var secretsInSource = []*regexp.Regexp{
	regexp.MustCompile(`://[^:/@\s]*:([^@/\s]+)@`),
	regexp.MustCompile(`\b[0-9a-fA-F]{8}([0-9a-fA-F]{32,})\b`),
	regexp.MustCompile(`(?i)\bsha256["']?\s*:\s*["']?([^\s,}"']+)`),
	regexp.MustCompile(`(?i)\b(?:password|passwd|token|secret)=([^&\s"']+)`),
}

// urlInSource finds settings that are URLs, and the rest of their line. plainURL matches URLs
// without secrets, or with secrets that the other patterns find. Any other value may be a
// password from its first character on.
var (
	urlInSource = regexp.MustCompile(`\b(?:[a-z]+_)?url["']?\s*:\s*["']?([^\s,}"']*)(.*)`)
	plainURL    = regexp.MustCompile(`^(?:pebble:[^@?]*|memory:|[a-z0-9-]+://(?:[^:/@?]*(?::[^/@?]+)?@)?[^@?]*)$`)
)

// maskSecrets hides passwords in URLs and most of each digest. The text keeps its length in
// bytes, so columns stay right unless a secret has multi-byte characters.
func maskSecrets(text string) string {
	at := urlInSource.FindStringSubmatchIndex(text)
	if at != nil && (!plainURL.MatchString(text[at[2]:at[3]]) || strings.Contains(text[at[3]:], "@")) {
		text = text[:at[2]] + strings.Repeat("*", len(text)-at[2])
	}
	for _, pattern := range secretsInSource {
		for _, at := range pattern.FindAllStringSubmatchIndex(text, -1) {
			text = text[:at[2]] + strings.Repeat("*", at[3]-at[2]) + text[at[3]:]
		}
	}
	return text
}
