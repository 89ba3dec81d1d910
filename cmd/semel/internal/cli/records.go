package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/query"
	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/internal/verdict/facts"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

// openRecords opens a source. The command closes the result at its end.
type openRecords func(cmd *cobra.Command, src *recordSource) (client.Records, io.Closer, error)

// recordsFrom is the common part of the commands on records.
type recordsFrom struct {
	source recordSource
	open   openRecords
	// routes are the operations that configured routes guard, once a local store is open.
	routes map[string]bool
	// terminal reports whether a person reads or writes a stream.
	terminal func(stream any) bool
}

func newRecordsFrom() *recordsFrom {
	return &recordsFrom{open: openSource, terminal: func(stream any) bool {
		w, ok := stream.(io.Writer)
		return ok && isTerminal(w)
	}}
}

// whichLong says which service or store a command asks.
const whichLong = `--url, --context or the variable SEMEL_URL name a service, and --store or --config a store.
If you give none of them, it's the current context (see 'semel context'), or the store that
'semel serve' uses without a file. If a service on this machine has that store open, the
command asks the service.`

const recordsLong = whichLong + `

A service wants your token, from the file that --token-file names or the variable
SEMEL_TOKEN. You need the role viewer to look, and operator to change something, at the
service's admin listener. To change something in a directory, give the service's --config
too, so that outcomes are kept as long as the service would, and archived where it would.

Exit codes: 0 done, 1 the work could not be done, 2 usage, 3 not found, 4 its state does
not allow it, 5 in use, out of reach, or unknown.`

func newRecords(from *recordsFrom) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "records",
		Short: "List, show, settle, confirm and purge records",
		Long:  "List records, show one, and settle, release, confirm or purge records.\n\n" + recordsLong,
	}, newRecordsList(from), newRecordsGet(from), newRecordsSettle(from), newRecordsRelease(from), newRecordsConfirm(from), newRecordsPurge(from))
	from.source.add(cmd.PersistentFlags())
	return cmd
}

// routed reports whether the configuration guards an operation by a route, so that duplicates get
// HTTP answers. A service decides this itself.
func (from *recordsFrom) routed(operation string) bool { return from.routes[operation] }

// with opens the records, lets f work on them, and closes them.
func (from *recordsFrom) with(cmd *cobra.Command, f func(ctx context.Context, recs client.Records) error) error {
	recs, closer, err := from.open(cmd, &from.source)
	if err != nil {
		return exitWith(err)
	}
	if l, ok := recs.(*localRecords); ok {
		from.routes = l.routes
	}
	ctx, stop := patient(cmd.Context(), cmd.ErrOrStderr(), from.terminal(cmd.ErrOrStderr()))
	defer stop()
	return from.source.looked(exitWith(errors.Join(f(ctx, recs), closer.Close())))
}

// look is with for an f that changes nothing. It works on a full disk, too.
func (from *recordsFrom) look(cmd *cobra.Command, f func(ctx context.Context, recs client.Records) error) error {
	from.source.look = true
	return from.with(cmd, f)
}

// localRecords is an engine on a store, for one command.
type localRecords struct {
	*semel.Engine
	routes  map[string]bool // operations that routes guard
	closers []io.Closer
	// attributes are those that the configuration declares.
	attributes []string
	log        *evidence.Log // to look at; nil without its keys
}

// Shown shows a record as a service on the store would.
func (l *localRecords) Shown(ctx context.Context, id semel.ID) (wire.Record, error) {
	rec, err := l.Lookup(ctx, id)
	if err != nil {
		return wire.Record{}, err
	}
	return facts.Show(ctx, l.Engine, l.log, &rec)
}

// Judged is [client.Client.Judged].
func (l *localRecords) Judged(ctx context.Context, q store.Query) (store.Page, []*verdict.Verdict, error) {
	page, err := l.Search(ctx, q)
	verdicts := make([]*verdict.Verdict, len(page.Records))
	all, _ := facts.Of(ctx, l.Engine, page.Records)
	for i := range all {
		verdicts[i] = new(verdict.Of(&all[i]))
	}
	return page, verdicts, err
}

func openLocal(cmd *cobra.Command, src *recordSource) (client.Records, io.Closer, error) {
	cfg, err := src.settings(cmd)
	if err != nil {
		return nil, nil, err
	}
	l := &localRecords{routes: map[string]bool{}, attributes: cfg.AttributeNames()}
	for _, route := range cfg.Routes {
		l.routes[route.Operation] = true
	}
	opts := &semel.Options{}
	for i := range cfg.Operations {
		op, err := cfg.Operations[i].Policy()
		if err != nil {
			return nil, nil, err
		}
		if op.Share == semel.ShareTenant {
			op.Authorize = func(context.Context, semel.Call, semel.Record) error { return errors.New("nothing is replayed here") }
		}
		if src.look {
			op.Evidence = "" // the command does nothing that needs evidence
		}
		opts.Operations = append(opts.Operations, op)
	}
	open := service.OpenStore
	if src.look {
		open = service.LookAtStore
	}
	store, err := openConfigured(cmd.Context(), cfg.Store, open, true)
	if err != nil {
		return nil, nil, err
	}
	l.closers = append(l.closers, store)
	if src.look { // without its keys, verdicts say what isn't known
		l.log, _ = service.LookAtEvidence(&cfg.Evidence, store)
	}
	if cfg.Archives() && !src.look {
		write, closer, err := service.OpenArchive(cfg.Archive, store)
		if err != nil {
			return nil, nil, errors.Join(err, l.Close())
		}
		if closer != nil {
			l.closers = append(l.closers, closer)
		}
		opts.Archive = write
	}
	if !src.look {
		// The evidence log has changes by a command too, if there are keys.
		log, err := service.OpenEvidence(&cfg.Evidence, store, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
		if err != nil {
			return nil, nil, errors.Join(err, l.Close())
		}
		if log != nil {
			opts.Witness = log
		}
	}
	if l.Engine, err = semel.New(store, opts); err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return l, l, nil
}

// localName is the user who runs the command. A service knows its callers itself.
func localName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "local"
}

// Close closes the engine, the store and the archive.
func (l *localRecords) Close() error {
	var errs []error
	if l.Engine != nil {
		errs = append(errs, l.Engine.Close(context.Background()))
	}
	for _, c := range l.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// parseQuery reads the qualifiers of a command line.
func parseQuery(args []string) (store.Query, error) {
	q, err := query.Parse(strings.Join(args, " "))
	if err != nil {
		return q, usage("%w", err)
	}
	return q, nil
}

// recordLine is the JSON of a record: as in the API, with its HTTP answer in clear.
type recordLine struct {
	wire.Record
	Answer *answerLine `json:"answer,omitempty"`

	of *semel.Record
}

func lineOf(rec *semel.Record) recordLine { return recordLine{wire.RecordOf(rec), answerOf(rec), rec} }

// stateOf is the state for people.
func stateOf(rec *semel.Record) string {
	switch {
	case rec.Held:
		return "held"
	case rec.State == semel.Failed:
		return rec.Disposition.String()
	}
	return rec.State.String()
}

// when is an instant for people.
func when(at store.Instant) string {
	if at == 0 {
		return "-"
	}
	return at.Time().Format(time.DateTime)
}
