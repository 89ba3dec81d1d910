package service

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/store"
)

// clockState describes the store's clock now, unless there is none or it can't be read.
func (s *Server) clockState(ctx context.Context) (st store.ClockState, now store.Instant, ok bool) {
	k := s.store.Extras().Clock
	if k == nil {
		return st, 0, false
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return st, 0, false
	}
	return k.ClockState(now), now, true
}

// clockCheck says how far the store's time is from the system clock. It is never a reason to get
// no traffic: calls are answered all the time.
func clockCheck(st store.ClockState, now store.Instant) Finding {
	c := Finding{Name: "clock"}
	switch {
	case st.Held > 0:
		c.Detail = fmt.Sprintf("HELD BACK: the clock went ahead by %v and isn't followed yet, so nothing expires early. Noticed %v ago, followed in %v if it lasts; semel store accept-clock follows it now",
			round(st.Held), round(now.Sub(st.Since)), round(st.Until.Sub(now)))
	case st.Back > 0:
		c.Detail = fmt.Sprintf("the clock was put back by %v, %v ago, and the store's time goes on ahead of it", round(st.Back), round(now.Sub(st.Since)))
	}
	c.Amiss = c.Detail != ""
	return c
}

func round(d time.Duration) time.Duration { return d.Round(time.Second) }

// lookAtClock is how often the log can notice that the store's clock leaps.
const lookAtClock = 2 * time.Second

// watchClock logs when the clock is set behind the store's time, and when the store follows.
func (s *Server) watchClock(ctx context.Context) {
	var was store.ClockState
	every(ctx, lookAtClock, func() {
		st, now, ok := s.clockState(ctx)
		if !ok {
			return
		}
		since := slog.Time("since", st.Since.Time())
		switch {
		case st.Held > 0 && (st.Since != was.Since || was.Held == 0):
			s.log.Warn("the clock of the store went ahead and isn't followed yet: nothing expires or is purged early",
				slog.Duration("by", st.Held), since, slog.Time("until", st.Until.Time()), slog.String("end_it_by", "semel store accept-clock"))
		case st.Held == 0 && was.Held > 0 && st.Leap.At > was.Since:
			s.log.Warn("the time of the store follows its clock again, which went ahead", slog.Duration("by", st.Leap.By), slog.Time("now", now.Time()))
		case st.Since == 0 && was.Since != 0:
			s.log.Info("the clock of the store is right again")
		case st.Held == 0 && st.Since != was.Since:
			s.log.Warn("the clock of the store was put back: the store's time goes on ahead of it", slog.Duration("by", st.Back), since)
		}
		was = st
	})
}

// serveAcceptClock has the store follow its clock now. Calls of every tenant may then expire
// and run again.
func (s *Server) serveAcceptClock(w http.ResponseWriter, r *http.Request) {
	if !s.oversees(w, r, "accept the clock") {
		return
	}
	k := s.store.Extras().Clock
	if k == nil {
		plain(w, http.StatusOK, "the store has no clock that leaps\n")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	st, err := k.AcceptClock(ctx)
	if err != nil {
		s.log.Error("the clock can't be accepted", slog.Any("error", err))
		plain(w, http.StatusServiceUnavailable, "The store refuses it: ask again.\n")
		return
	}
	s.log.Warn("an operator has accepted the clock of the store", slog.Duration("held", st.Held))
	plain(w, http.StatusOK, AcceptedClock(st)+"\n")
}

// AcceptedClock says, for people, what accepting a clock did.
func AcceptedClock(st store.ClockState) string {
	if st.Held > 0 {
		return fmt.Sprintf("accepted: the store follows its clock, which is %v ahead, in a few seconds", round(st.Held))
	}
	return "accepted: the store holds nothing back"
}

// ofAllTenants says who has a role for all tenants.
const ofAllTenants = "whom the configuration names without a tenant, or whose token has a value of auth.jwt[].roles with all_tenants."

// oversees refuses whoever isn't an admin of all tenants.
func (s *Server) oversees(w http.ResponseWriter, r *http.Request, to string) bool {
	c, err := s.operator(r)
	return s.allowed(w, err, c.Role == api.Admin && c.AllTenants, "Only an admin of all tenants may "+to+": one "+ofAllTenants)
}

func (s *Server) allowed(w http.ResponseWriter, err error, may bool, why string) bool {
	switch {
	case err != nil:
		w.Header().Set("WWW-Authenticate", auth.Challenge(err))
		plain(w, http.StatusUnauthorized, "Send a credential.\n")
	case !may:
		plain(w, http.StatusForbidden, why+"\n")
	}
	return err == nil && may
}
