package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/rueidis"
)

// ErrRights is the error, wrapped, that Open and [Store.CheckWrites] return if the user may not
// run a command that the store needs. The error names the commands.
var ErrRights = errors.New("the user lacks rights")

// scriptRights tries the commands that the store sends, on a key that never exists, so that
// none changes anything, and returns the names of the forbidden ones. Refusals for other
// reasons, such as a full server, don't count.
//
// KEYS: the key.
var scriptRights = newScript(`local k, lacks = KEYS[1], {}
for _, c in ipairs({{'GET', k}, {'GETRANGE', k, '0', '0'}, {'SET', k, '', 'XX'}, {'DEL', k}, {'UNLINK', k},
	{'ZADD', k, 'XX', '0', ''}, {'ZREM', k, ''}, {'ZRANGE', k, '0', '0'}, {'ZSCORE', k, ''}, {'EXISTS', k}, {'TIME'}}) do
	local r = redis.pcall(unpack(c))
	local why = type(r) == 'table' and r.err
	if why and (string.find(why, 'NOPERM', 1, true) or string.find(why, 'executing the script can', 1, true)) then
		lacks[#lacks + 1] = c[1]
	end
end
return lacks`)

// checkRights returns nil if the user may do everything that calls need, or else an [ErrRights].
func (s *Store) checkRights(ctx context.Context) error {
	c, r := s.link.client(), run{keys: []string{s.keys.shards[0].records + "none"}}
	answers, err := s.ask(ctx, c, scriptRights.command(c.B(), &r, true), scriptRights.command(c.B(), &r, false))
	if err != nil {
		return err
	}
	var lacks []string
	for i, command := range []string{"EVAL", "EVALSHA"} {
		list, err := answers[i].AsStrSlice()
		switch word := answerWord(err); {
		case word == "NOPERM" && strings.Contains(err.Error(), " keys"):
			return fmt.Errorf("%w: %w. Let an administrator run ACL SETUSER USER ~%s:*", ErrRights, err, s.opts.Prefix)
		case word == "NOPERM":
			lacks = append(lacks, command)
		case err == nil:
			lacks = append(lacks, list...)
		case word != noScript:
			return err
		}
	}
	slices.Sort(lacks)
	lacks = slices.Compact(lacks)
	if len(lacks) == 0 {
		return nil
	}
	return fmt.Errorf("%w to run %s. Let an administrator run ACL SETUSER USER +%s", ErrRights, strings.Join(lacks, ", "), strings.ToLower(strings.Join(lacks, " +")))
}

// checkPassword refuses a server that asks for no password although the address has one: it is
// the wrong server, or has lost its protection, so that anybody who reaches it can change
// records. A user other than the default one may have no password: somebody chose that.
func (s *Store) checkPassword() error {
	option := s.link.option
	if option.Password == "" || option.Username != "" && option.Username != "default" {
		return nil
	}
	for address := range s.link.nodes() {
		option.InitAddress, option.Username, option.Password = []string{address}, "", ""
		option.Sentinel, option.ForceSingleClient = rueidis.SentinelOption{}, true
		c, err := rueidis.NewClient(option)
		if err != nil {
			return nil // it asks for one, or doesn't answer now
		}
		c.Close()
		return errors.New("the address has a password, and the server asks for none: whoever reaches it can read and change all records. Set requirepass on the server, or leave the password out")
	}
	return nil
}
