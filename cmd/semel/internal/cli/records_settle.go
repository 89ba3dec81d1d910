package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store"
)

// settleFlags say what happened to a held record.
type settleFlags struct {
	outcome, result, resultFile string
	status                      int
	headers                     []string
	code, message               string
	effects                     []string
}

func newRecordsSettle(from *recordsFrom) *cobra.Command {
	c := &recordChanger{change: change[semel.Record]{from: from}}
	var f settleFlags
	cmd := &cobra.Command{
		Use:               "settle [NAME | --all QUALIFIER...]",
		ValidArgsFunction: completeQualifiers,
		Short:             "Settle a held record: say whether its work was done",
		Long: `Settle a held record: its attempt died, broke off or ran out of time, and nobody
knows whether the work was done. Say it with an outcome:
  completed  the work was done: duplicates get --result from now on
  rejected   it was refused for good: duplicates get the refusal
  failed     it failed: the operation's on_failure says what comes next
  aborted    nothing happened: the next delivery runs again
If the call was an HTTP request, duplicates get an HTTP answer: give --status, one
--header for each header, and --result as its body. Without --status they get the
status 410, which says that the call ran and that its answer is unknown.

With --effect, settle an effect that was started and has no result: say confirmed,
with the JSON of its result, or refuted. If you give no outcome and no effect is
open any more, the next delivery runs again and replays the recorded results. Semel
doesn't ask the provider: that's up to you.

` + changeAll + changeJSON,
		Example: `  semel records settle RECORD --outcome completed --status 201 \
    --header 'Content-Type: application/json' --result '{"refund":"re_1"}' --reason 'ticket 7'
  semel records settle RECORD --outcome completed --result '{"charge":"ch_1"}' --reason 'ticket 7'
  semel records settle --all operation:payments.charge after:2026-01-01 \
    --outcome aborted --reason 'nothing had arrived' --dry-run
  semel records settle RECORD --effect 'charge=confirmed:"ch_1"' --reason 'ticket 7'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.settlement(cmd)
			if err != nil {
				return err
			}
			check := func(rec *semel.Record) error {
				if err := checkSettlement(rec, &s); err != nil {
					return err
				}
				return f.checkResult(rec, &s, c.from.routed(rec.ID.Operation))
			}
			return c.apply(cmd, args, c, c.settle("settle", settleMeans(&s), &s, check))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.outcome, "outcome", "", "completed, rejected, failed or aborted")
	flags.IntVar(&f.status, "status", 0, "`status` that duplicates of an HTTP request get")
	flags.StringArrayVar(&f.headers, "header", nil, "`'NAME: VALUE'` of that answer's header; may be repeated")
	flags.StringVar(&f.result, "result", "", "`text` that duplicates get")
	flags.StringVar(&f.resultFile, "result-file", "", "`file` with the answer that duplicates get; - is standard input")
	flags.StringVar(&f.code, "failure-code", "", "short `word` for why it failed")
	flags.StringVar(&f.message, "failure-message", "", "`words` on why it failed")
	flags.StringArrayVar(&f.effects, "effect", nil, "`NAME=confirmed:JSON` or NAME=refuted; may be repeated")
	c.flags(cmd, allHeld)
	return cmd
}

// settlement is the settlement by the flags.
func (f *settleFlags) settlement(cmd *cobra.Command) (s semel.Settlement, err error) {
	flags := cmd.Flags()
	outcomes := map[string]store.Disposition{
		"": 0, "completed": semel.DispositionCompleted, "rejected": semel.DispositionRejected,
		"failed": semel.DispositionFailed, "aborted": semel.DispositionAborted,
	}
	outcome, ok := outcomes[f.outcome]
	hasResult := flags.Changed("result") || flags.Changed("result-file")
	hasFailure := f.code != "" || f.message != ""
	switch {
	case !ok:
		return s, usage("--outcome is %q, not completed, rejected, failed or aborted", f.outcome)
	case f.outcome == "" && len(f.effects) == 0:
		return s, usage("say what happened: give --outcome or --effect")
	case flags.Changed("result") && flags.Changed("result-file"):
		return s, usage("--result and --result-file exclude each other: give one of them")
	case hasResult && (f.outcome == "" || f.outcome == "aborted"):
		return s, usage("--result needs --outcome completed, rejected or failed")
	case hasFailure && (f.outcome == "" || f.outcome == "completed"):
		return s, usage("--failure-code and --failure-message need --outcome rejected, failed or aborted")
	case len(f.headers) > 0 && f.status == 0:
		return s, usage("--header needs --status: both are parts of an HTTP answer")
	case flags.Changed("status") && (f.outcome == "" || f.outcome == "aborted"):
		return s, usage("--status needs --outcome completed, rejected or failed")
	case f.resultFile == "-" && !flags.Changed("yes") && !flags.Changed("dry-run"):
		return s, usage("--result-file - needs --yes: standard input can't answer too")
	}
	s.Outcome = outcome
	if hasFailure {
		s.Failure = &store.Failure{Code: f.code, Message: f.message}
	}
	if hasResult {
		s.Result.Data = []byte(f.result)
	}
	if f.resultFile != "" {
		data, err := readAll(cmd, f.resultFile)
		if err != nil {
			return s, err
		}
		s.Result.Data = append([]byte{}, data...)
	}
	if flags.Changed("status") {
		var err error
		if s.Result, err = f.answer(outcome, s.Result.Data); err != nil {
			return s, err
		}
	}
	for _, text := range f.effects {
		finding, err := parseEffect(text)
		if err != nil {
			return s, err
		}
		s.Effects = append(s.Effects, finding)
	}
	return s, nil
}

// parseEffect reads NAME=confirmed:JSON or NAME=refuted. The name may have a "=".
func parseEffect(text string) (store.EffectFinding, error) {
	for _, state := range []store.EffectState{store.EffectConfirmed, store.EffectRefuted} {
		name, rest, ok := strings.Cut(text, "="+string(state))
		result, given := strings.CutPrefix(rest, ":")
		switch {
		case !ok || name == "" || rest != "" && !given:
			continue
		case given && state == store.EffectRefuted:
			return store.EffectFinding{}, usage("--effect: what did not happen has no result")
		}
		finding := store.EffectFinding{Name: name, State: state}
		if given {
			finding.Result.Data = []byte(result)
		}
		return finding, nil
	}
	return store.EffectFinding{}, usage("--effect is %q, not NAME=confirmed:JSON or NAME=refuted", text)
}

// checkSettlement refuses what the engine would refuse.
func checkSettlement(rec *semel.Record, s *semel.Settlement) error {
	if err := checkHeld(rec); err != nil {
		return err
	}
	for _, f := range s.Effects {
		if !slices.ContainsFunc(rec.Effects, func(ef store.EffectRecord) bool { return ef.Name == f.Name && ef.State == store.EffectStarted }) {
			return illegal("effect %s is not open", printable(f.Name))
		}
	}
	return nil
}

// settleMeans says what a settlement does.
func settleMeans(s *semel.Settlement) string {
	var parts []string
	for _, f := range s.Effects {
		parts = append(parts, fmt.Sprintf("effect %s is recorded as %s", printable(f.Name), f.State))
	}
	switch s.Outcome {
	case semel.DispositionCompleted:
		parts = append(parts, "the record is completed, and duplicates get "+given(s.Result))
	case semel.DispositionRejected:
		parts = append(parts, "the record is refused for good, and duplicates get the refusal")
	case semel.DispositionFailed:
		parts = append(parts, "the record is failed, and its operation says what the next delivery gets")
	case semel.DispositionAborted:
		parts = append(parts, "nothing happened, and the next delivery runs again")
	default:
		parts = append(parts, "the next delivery runs again if no effect is open then")
	}
	return strings.Join(parts, "; ") + "."
}

// given says what duplicates will get.
func given(res semel.Result) string {
	switch a, ok := semelhttp.ParseAnswer(res); {
	case ok:
		return fmt.Sprintf("the answer %d with %s", a.Status, brief(semel.Result{Data: a.Body}))
	case res.IsZero():
		return "no result, which over HTTP is the status 410: --status gives them one"
	}
	return "its result: " + brief(res)
}
