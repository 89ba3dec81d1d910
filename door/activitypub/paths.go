package activitypub

import (
	"errors"
	"net/url"
	"strings"

	"github.com/semelhq/semel/store"
)

// CheckActors reports faults of [Options].Actors.
func CheckActors(url string) error {
	_, err := newTemplate(url)
	return err
}

// Serves reports whether an inbox with these options serves a path, and the name of its actor,
// who may not exist. The name is empty for the shared inbox.
func (opts Options) Serves(path string) (actor string, serves bool) {
	actors, err := newTemplate(opts.Actors)
	if err != nil {
		return "", false
	}
	actor, serves = actors.inbox(path)
	return actor, serves || opts.shares(path)
}

// shares reports whether a path is the shared inbox's.
func (opts *Options) shares(path string) bool {
	return opts.Shared != "" && strings.TrimSuffix(path, "/") == strings.TrimSuffix(opts.Shared, "/")
}

// template is the URL of an actor, with {actor} for the name.
type template struct {
	origin        string
	before, after string // the name, in the path
}

const actorMark = "{actor}"

// maxName is the longest name of an actor, in bytes. It is part of the scope of calls.
const maxName = 100

func newTemplate(s string) (*template, error) {
	before, after, ok := strings.Cut(s, actorMark)
	if !ok || strings.Contains(after, actorMark) {
		return nil, errors.New("it needs {actor} once")
	}
	u, err := url.Parse(before + "a" + after)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("it isn't a URL like https://social.example/actors/{actor}")
	}
	origin := u.Scheme + "://" + u.Host
	path, inPath := strings.CutPrefix(before, origin)
	if !inPath || !strings.HasSuffix(path, "/") || after != "" && !strings.HasPrefix(after, "/") || u.Path != cleanPath(u.Path) {
		return nil, errors.New("{actor} has to be a whole part of its path")
	}
	return &template{origin: strings.ToLower(origin), before: path, after: after}, nil
}

func cleanPath(p string) string { return (&url.URL{Path: "/"}).JoinPath(p).Path }

// inbox returns the name of the actor with an inbox at the path.
func (t *template) inbox(path string) (actor string, is bool) {
	return t.name(path, t.after+"/inbox")
}

// name returns the text between the beginning of an actor's path and end.
func (t *template) name(path, end string) (actor string, is bool) {
	rest, under := strings.CutPrefix(path, t.before)
	rest, is = strings.CutSuffix(strings.TrimSuffix(rest, "/"), end)
	return rest, under && is && isName(rest)
}

// isName reports whether a part of a path can be an actor's name.
func isName(s string) bool {
	return s != "" && len(s) <= maxName && !strings.Contains(s, "/") && store.ValidText(s)
}

// actor returns the name of the actor with a URI.
func (t *template) actor(uri string) (actor string, is bool) {
	u, err := url.Parse(uri)
	if err != nil || u.RawQuery != "" || u.Fragment != "" || strings.ToLower(u.Scheme+"://"+u.Host) != t.origin {
		return "", false
	}
	return t.name(u.Path, t.after)
}
