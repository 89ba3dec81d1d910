package activitypub

// CheckActors reports what is wrong with [Options].Actors.
func CheckActors(url string) error {
	_, err := newTemplate(url)
	return err
}

// Serves reports whether an inbox with these options serves a path, and the name of the
// actor whose inbox it is; there need not be such an actor. The name is empty for the
// shared inbox.
func (opts Options) Serves(path string) (actor string, serves bool) {
	actors, err := newTemplate(opts.Actors)
	if err != nil {
		return "", false
	}
	actor, serves = actors.inbox(path)
	return actor, serves || (&Inbox{opts: opts}).shared(path)
}
